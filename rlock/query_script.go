package rlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

var queryScript = load("query", "query")

// queryRequest asks whether a lock, or a side of one, is held, and how often an owner holds it.
type queryRequest struct {
	owner string // may be empty
}

type queryReply struct {
	owners, count int64
	left          time.Duration // 0: not held; negative: without end
}

func queryCall(l *single, r queryRequest) script.Call {
	keys := lockAlone(l.keys)
	if l.kind.side != alone {
		keys = l.keys
	}
	return script.Call{Script: l.kind.query, Keys: keys, Args: []string{l.field(r.owner)}}
}

func decodeQuery(m rueidis.RedisMessage) (queryReply, error) {
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 3 {
		return queryReply{}, fmt.Errorf("query: unexpected reply %v, error %v", v, err)
	}
	q := queryReply{owners: v[0], count: v[1], left: time.Duration(v[2]) * time.Millisecond}
	switch v[2] {
	case -2:
		q.left = 0
	case -1:
		q.left = noEnd
	}
	return q, nil
}

func (l *single) runQuery(ctx context.Context, r queryRequest) (queryReply, error) {
	m, err := l.c.runner.Do(ctx, queryCall(l, r))
	if err != nil {
		return queryReply{}, err
	}
	return decodeQuery(m)
}
