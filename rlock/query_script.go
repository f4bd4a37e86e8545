package rlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

var queryScript = load("query", "query")

type queryReply struct {
	owners, count int64
	left          time.Duration // 0: not held; negative: without end
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

// runQuery asks whether a lock, or a side of one, is held, and how often owner, which may be empty, holds it.
func (l *single) runQuery(ctx context.Context, owner string) (queryReply, error) {
	keys := lockAlone(l.keys)
	if l.kind.side != alone {
		keys = l.holdKeys()
	}
	m, err := l.c.runner.Do(ctx, script.Call{Script: l.kind.query, Keys: keys, Args: []string{l.field(owner)}})
	if err != nil {
		return queryReply{}, err
	}
	return decodeQuery(m)
}
