package rcounter

import (
	"context"
	"strconv"

	"github.com/redlatch/redlatch/internal/script"
)

var setScript = script.Load("set", files, "set")

// set runs set.lua.
func (c *Client) set(ctx context.Context, key string, v int64, ttl string) error {
	_, err := c.calls.Do(ctx,
		script.Call{Script: setScript, Keys: []string{key}, Args: []string{strconv.FormatInt(v, 10), ttl}, Once: true})
	return err
}
