package rsemaphore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// sender is a way to send a call: once, or until it is answered.
type sender = func(ctx context.Context, call script.Call) (rueidis.RedisMessage, error)

// exchange sends a call, and reads the values of its reply: see read.
func exchange(ctx context.Context, send sender, what string, call script.Call, values ...any) error {
	m, err := send(ctx, call)
	if err != nil {
		return err
	}
	return read(m, what, call.Keys[0], values...)
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
