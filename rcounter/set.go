package rcounter

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed set.lua
var setSource string

var setScript = script.New("set", setSource)

// set runs set.lua.
func (c *Client) set(ctx context.Context, key string, v int64, ttl string) error {
	_, err := c.do(ctx, script.Call{Script: setScript, Keys: []string{key}, Args: []string{strconv.FormatInt(v, 10), ttl}, Once: true})
	return err
}
