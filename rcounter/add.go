package rcounter

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed add.lua
var addSource string

var addScript = script.New("add", addSource)

type addArgs struct {
	delta, initial int64
	limit          string // furthest value that delta may be added to, "" for none
	ttl            string
}

const (
	addOK = iota
	addBeyond
	addNotInteger
)

type addReply struct {
	code  int64
	value int64  // the sum, or what stands
	raw   string // the same as text, which need not be a number
}

// add runs add.lua. What it refuses is in the reply; the error is of the call.
func (c *Client) add(ctx context.Context, key string, a addArgs) (addReply, error) {
	m, err := c.do(ctx, script.Call{Script: addScript, Keys: []string{key}, Once: true,
		Args: []string{strconv.FormatInt(a.delta, 10), strconv.FormatInt(a.initial, 10), a.limit, a.ttl}})
	if err != nil {
		return addReply{}, err
	}
	code, raw, ok := codeAndText(m)
	r := addReply{code: code, raw: raw}
	if ok && code != addNotInteger {
		r.value, ok = integer(raw)
	}
	if !ok {
		return addReply{}, malformed("add", key)
	}
	return r, nil
}

// codeAndText decodes {integer, string}.
func codeAndText(m rueidis.RedisMessage) (code int64, text string, ok bool) {
	parts, err := m.ToArray()
	if err != nil || len(parts) != 2 {
		return 0, "", false
	}
	code, err = parts[0].AsInt64()
	if err != nil {
		return 0, "", false
	}
	text, err = parts[1].ToString()
	return code, text, err == nil
}
