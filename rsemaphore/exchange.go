package rsemaphore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// exchange is one call of a script, with the function that reads its reply. Each script has one function that makes its
// exchanges. Only that function knows the order of the arguments and replies.
type exchange[R any] struct {
	script.Call
	decode func(m rueidis.RedisMessage) (R, error)
}

// sender is a way to send a call: once, or until it is answered.
type sender = func(ctx context.Context, call script.Call) (rueidis.RedisMessage, error)

// by sends the call and reads the reply.
func (x exchange[R]) by(ctx context.Context, send sender) (reply R, err error) {
	m, err := send(ctx, x.Call)
	if err != nil {
		return reply, err
	}
	return x.decode(m)
}

// late returns the exchange with then added: then gets a reply that comes after the caller has given up.
func (x exchange[R]) late(then func(R)) exchange[R] {
	x.Late = func(res rueidis.RedisResult) {
		if m, err := res.ToMessage(); err == nil {
			if r, err := x.decode(m); err == nil {
				then(r)
			}
		}
	}
	return x
}

// timed returns the timed call of exchanges that the server refuses after an instant. next makes an exchange for each
// try.
func timed[R script.Reply](key string, send sender,
	next func(sent time.Time, notAfter int64) exchange[R]) script.Timed[R] {
	var x exchange[R]
	return script.Timed[R]{
		Key: key,
		Send: func(ctx context.Context, sent time.Time, notAfter int64) (rueidis.RedisMessage, error) {
			x = next(sent, notAfter)
			return send(ctx, x.Call)
		},
		Decode: func(m rueidis.RedisMessage) (R, error) { return x.decode(m) },
	}
}

// ask runs an exchange for a caller whose ctx may have no deadline; bad: of an object that cannot be used.
func ask[R any](ctx context.Context, c *Client, bad error, x exchange[R], send sender) (R, error) {
	return session.Ask(ctx, c.session, bad, func(ctx context.Context) (R, error) { return x.by(ctx, send) })
}

// malformed returns the error for a reply that no script of ours sends.
func malformed(what, key string, reply any) error {
	return fmt.Errorf("unexpected reply to %s on %q: %.200v", what, key, reply)
}

// read reads a reply of one value, or of as many as there are: *int64, *bool (1), *string, or *time.Duration (ms; -1
// for all that is negative).
func read(m rueidis.RedisMessage, what, key string, values ...any) error {
	list := []rueidis.RedisMessage{m}
	if len(values) > 1 {
		var err error
		if list, err = m.ToArray(); err != nil || len(list) != len(values) {
			return malformed(what, key, &m)
		}
	}
	for i, v := range values {
		var n int64
		var err error
		if text, ok := v.(*string); ok {
			*text, err = list[i].ToString()
		} else {
			n, err = list[i].AsInt64()
		}
		if err != nil {
			return malformed(what, key, &m)
		}
		switch v := v.(type) {
		case *int64:
			*v = n
		case *bool:
			*v = n == 1
		case *time.Duration:
			*v = max(-1, script.Duration(n))
		}
	}
	return nil
}

func notInteger(key string) error {
	return fmt.Errorf("%w: %q is not an integer", errs.ErrWrongType, key)
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
