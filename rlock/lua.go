package rlock

import (
	"context"
	"embed"
	"errors"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed lua
var lua embed.FS

// load makes the script of a file in lua/; name is what errors call it.
func load(name, file string) *script.Script { return script.Load(name, lua, file) }

// renewScript is run by the watchdog (package lease), which writes its arguments and reads its replies, as of the other
// kinds'.
var renewScript = load("renew", "renew")

// lockAlone are the keys of a script that makes do with the lock's own, which is the first.
func lockAlone(keys []string) []string { return keys[:1:1] }

// callWithQueue makes a call whose second key, if it has one, is the queue. While a slot is being migrated a script
// with two keys is refused, held or free; the lock alone is the truth, and its waiters poll meanwhile.
func (c *Client) callWithQueue(ctx context.Context, call *script.Call) (rueidis.RedisMessage, error) {
	m, err := c.runner.Attempt(ctx, *call)
	if err != nil && len(call.Keys) > 1 {
		var re *rueidis.RedisError
		if errors.As(err, &re) && re.IsTryAgain() {
			call.Keys = lockAlone(call.Keys)
			m, err = c.runner.Attempt(ctx, *call)
		}
	}
	return m, err
}
