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

// read reads a reply of one value, or of as many as there are: see readValue.
func read(m rueidis.RedisMessage, what, key string, values ...any) error {
	if len(values) == 1 {
		if readValue(&m, values[0]) != nil {
			return malformed(what, key, &m)
		}
		return nil
	}
	rest, err := readHead(m, what, key, values...)
	if err == nil && len(rest) > 0 {
		err = malformed(what, key, &m)
	}
	return err
}

// readHead reads the first values of a reply of several, and returns the rest.
func readHead(m rueidis.RedisMessage, what, key string, values ...any) (rest []rueidis.RedisMessage, err error) {
	list, err := m.ToArray()
	if err != nil || len(list) < len(values) {
		return nil, malformed(what, key, &m)
	}
	for i, value := range values {
		if readValue(&list[i], value) != nil {
			return nil, malformed(what, key, &m)
		}
	}
	return list[len(values):], nil
}

// readValue reads a value into an *int64, *bool (1), *string, or *time.Duration (ms; -1 for all that is negative).
func readValue(m *rueidis.RedisMessage, value any) (err error) {
	if text, ok := value.(*string); ok {
		*text, err = m.ToString()
		return err
	}
	n, err := m.AsInt64()
	switch value := value.(type) {
	case *int64:
		*value = n
	case *bool:
		*value = n == 1
	case *time.Duration:
		*value = max(-1, script.Duration(n))
	}
	return err
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
