package stock

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

var hscanScript = script.Plain("hscan")

// scan reads all of a hash in parts, so that the server can do other work in between. The hash must not change while it
// is read. each may get a field more than once.
func (c *Client) scan(ctx context.Context, key string, each func(field, value string) error) error {
	for cursor := uint64(0); ; {
		m, err := c.calls.Do(ctx,
			script.Call{Script: hscanScript, Keys: []string{key}, Command: func(b rueidis.Builder) rueidis.Completed {
				return b.Hscan().Key(key).Cursor(cursor).Count(1000).Build()
			}})
		if err != nil {
			return err
		}
		e, err := m.AsScanEntry()
		if err != nil {
			return malformed("hscan", key)
		}
		for i := 0; i+1 < len(e.Elements); i += 2 {
			switch err := each(e.Elements[i], e.Elements[i+1]); {
			case errors.Is(err, errEnough):
				return err
			case err != nil:
				return fmt.Errorf("%w: %q has a record that is none", errs.ErrCorrupt, key)
			}
		}
		if cursor = e.Cursor; cursor == 0 {
			return nil
		}
	}
}
