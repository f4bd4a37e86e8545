package contract_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/pubsub"
)

// Every verb ends, whatever is the reply to the first command for its key. The text has several replies, and the key
// chooses one: setting up takes longer than all verbs.
func FuzzVerbs(f *testing.F) {
	f.Add(":1\n\n*\n:1\n:30000\n:1700000000000\n:1\n:0\n:17\n.\n\n*\n*\n:0\n:0\n:0\n.\n*\n.\n.\n\n$text\n\n-NOSCRIPT no")
	f.Add("_\n\n-BUSY no\n\n*\n:0\n:9223372036854775807\n:1\n:3\n:-1\n.\n\n*\n$1\n$2\n.\n\n*\n.\n\n-MOVED 1 x")
	f.Fuzz(func(t *testing.T, text string) {
		s := redistest.Embedded(t)
		replies := strings.Split(text, "\n\n")
		require.NoError(t, s.Embedded.Server().Register("HOSTILE", func(c *server.Peer, _ string, args []string) {
			chosen := crc32.ChecksumIEEE([]byte(args[0])) % uint32(len(replies))
			c.WriteRaw(wire(redistest.Reply(replies[chosen])))
		}))
		keyAt := map[string]int{"EVALSHA": 3, "EVAL": 3, "GET": 1}
		var hostile atomic.Bool
		var met sync.Map // keys whose first command had the reply
		o := redlatch.Options{CallTimeout: 100 * time.Millisecond, RetryTimeout: 300 * time.Millisecond}
		o.Hub = func(o *pubsub.Options) {
			o.NewClient = func(o rueidis.ClientOption) (rueidis.Client, error) {
				c, err := rueidis.NewClient(o)
				return &rig.Garbled{Client: c, Match: func(args []string) bool {
					if !hostile.Load() || keyAt[args[0]] == 0 {
						return false
					}
					_, seen := met.LoadOrStore(args[keyAt[args[0]]], true)
					return !seen
				}, Instead: func(args []string) []string { return []string{"HOSTILE", args[keyAt[args[0]]]} }}, err
			}
		}
		red, other := open(t, s, o), open(t, s, patient)
		calls := unwaiting(t, red, other)
		for verb, call := range releases(t, open(t, s, o)) {
			calls["back "+verb] = call
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		hostile.Store(true)
		calls.all(ctx)
		hostile.Store(false)
	})
}

// wire returns a reply as a server sends it.
func wire(reply rueidis.RedisMessage) string {
	if list, err := reply.ToArray(); err == nil {
		var all strings.Builder
		for _, element := range list {
			all.WriteString(wire(element))
		}
		return fmt.Sprintf("*%d\r\n%s", len(list), all.String())
	}
	if number, err := reply.ToInt64(); err == nil {
		return fmt.Sprintf(":%d\r\n", number)
	}
	if text, err := reply.ToString(); err == nil {
		return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
	}
	if err, refused := rueidis.IsRedisErr(reply.Error()); refused && !reply.IsNil() {
		return fmt.Sprintf("-%s\r\n", strings.ReplaceAll(err.Error(), "\r", " "))
	}
	return "_\r\n"
}
