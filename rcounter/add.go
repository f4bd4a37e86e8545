package rcounter

import (
	"context"
	"strconv"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/script"
)

var addScript = script.Load("add", files, "add")

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

// addArgs are the arguments by which the counter's options have d added.
func (k *Counter) addArgs(d int64) []string {
	return []string{strconv.FormatInt(d, 10), strconv.FormatInt(k.initial, 10), k.limit(d), k.ttl}
}

// add runs add.lua. What it refuses is in the reply; the error is of the call.
func (k *Counter) add(ctx context.Context, d int64) (addReply, error) {
	return k.c.adding(ctx, script.Call{Script: addScript, Keys: []string{k.key}, Once: true, Args: k.addArgs(d)})
}

// adding runs a script that replies as add.lua does.
func (c *Client) adding(ctx context.Context, call script.Call) (addReply, error) {
	m, err := c.calls.Do(ctx, call)
	if err != nil {
		return addReply{}, err
	}
	code, raw, ok := codeAndText(m)
	if !ok {
		return addReply{}, malformed("add", call.Keys[0])
	}
	return newAddReply(code, raw, call.Keys[0])
}

// newAddReply reads the two values of which a reply of add.lua consists.
func newAddReply(code int64, raw, key string) (addReply, error) {
	r, ok := addReply{code: code, raw: raw}, true
	if code != addNotInteger {
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
