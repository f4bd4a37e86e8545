package rcounter

import (
	"context"
	"strconv"

	"github.com/redlatch/redlatch/internal/script"
)

var casScript = script.Load("compareandset", files, "cas")

type casArgs struct {
	old, next, initial int64
	ttl                string
}

type casReply struct {
	set bool
	raw string // the value afterwards, which need not be a number if it was not set
}

// cas runs cas.lua.
func (c *Client) cas(ctx context.Context, key string, a casArgs) (casReply, error) {
	m, err := c.calls.Do(ctx, script.Call{Script: casScript, Keys: []string{key}, Once: true,
		Args: []string{strconv.FormatInt(a.old, 10), strconv.FormatInt(a.next, 10), strconv.FormatInt(a.initial, 10), a.ttl}})
	if err != nil {
		return casReply{}, err
	}
	code, raw, ok := codeAndText(m)
	if !ok {
		return casReply{}, malformed("compareandset", key)
	}
	return casReply{set: code == 1, raw: raw}, nil
}
