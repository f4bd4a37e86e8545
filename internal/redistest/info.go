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

// Describe has miniredis answer three questions that it does not know. To INFO server it says a run_id, and that it has
// been up for up; to INFO commandstats how often it was sent each command since, without those that scripts call; to
// WAIT how many replicas Server.SetReplicas gave it.
func Describe(m *miniredis.Miniredis, up time.Duration) { describe(m, up) }

func describe(m *miniredis.Miniredis, up time.Duration) *declared {
	id := make([]byte, 20)
	rand.Read(id)
	began := time.Now().Add(-up)
	var mu sync.Mutex
	calls := map[string]int{}
	scripts := &declared{server: m.Server()}
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if scripts.before(c, cmd, args) {
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		calls[strings.ToLower(cmd)]++
		if strings.EqualFold(cmd, "WAIT") {
			c.WriteInt(int(scripts.replicas.Load()))
			return true
		}
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
	return scripts
}

// SetReplicas has an embedded server answer that n replicas have what it is asked about by WAIT.
func (s *Server) SetReplicas(n int) { s.scripts.replicas.Store(int64(n)) }
