package redistest

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Describe has miniredis answer INFO server, which it does not know: with a run_id, and as if it had been up for up.
func Describe(m *miniredis.Miniredis, up time.Duration) {
	id := make([]byte, 20)
	rand.Read(id)
	began := time.Now().Add(-up)
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if !strings.EqualFold(cmd, "INFO") || len(args) != 1 || !strings.EqualFold(args[0], "server") {
			return false
		}
		c.WriteBulk(fmt.Sprintf("# Server\r\nrun_id:%x\r\nuptime_in_seconds:%d\r\n", id, int(time.Since(began).Seconds())))
		return true
	})
}
