package redistest

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Describe has miniredis answer two questions that it does not know. To INFO server it says a run_id, and that it has
// been up for up; to INFO commandstats how often it was sent each command since, without those that scripts call.
func Describe(m *miniredis.Miniredis, up time.Duration) {
	id := make([]byte, 20)
	rand.Read(id)
	began := time.Now().Add(-up)
	var mu sync.Mutex
	calls := map[string]int{}
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		mu.Lock()
		defer mu.Unlock()
		calls[strings.ToLower(cmd)]++
		if !strings.EqualFold(cmd, "INFO") || len(args) != 1 {
			return false
		}
		var text strings.Builder
		switch strings.ToLower(args[0]) {
		case "server":
			fmt.Fprintf(&text, "# Server\r\nrun_id:%x\r\nuptime_in_seconds:%d\r\n", id, int(time.Since(began).Seconds()))
		case "commandstats":
			text.WriteString("# Commandstats\r\n")
			for name, n := range calls {
				fmt.Fprintf(&text, "cmdstat_%s:calls=%d,usec=0\r\n", name, n)
			}
		default:
			return false
		}
		c.WriteBulk(text.String())
		return true
	})
}
