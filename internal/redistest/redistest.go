// Package redistest starts the servers that tests run against: miniredis inside the process for quick logic, and
// private redis-server processes, alone, as a Cluster or as a primary with replicas and sentinels, each on free
// loopback ports in a directory of its own and ended with the test.
package redistest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
)

// RequireEnv, set to 1, turns a missing redis-server from a skip into a failure.
const RequireEnv = "REDLATCH_REQUIRE_REDIS"

// Server is one running server, the seed nodes of a Cluster, or the sentinels of a primary and its replica.
type Server struct {
	Addrs    []string
	Embedded *miniredis.Miniredis // nil for a real server
	Process  *os.Process          // nil for the embedded server

	dial func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) // nil: TCP
	set  string                                                                    // Addrs are sentinels that watch this
}

// Addr is the first address.
func (s *Server) Addr() string { return s.Addrs[0] }

// Embedded starts miniredis on a loopback port, its TTLs running with the wall clock.
func Embedded(t testing.TB) *Server {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		t.Fatalf("redistest: start miniredis: %v", err)
	}
	t.Cleanup(m.Close)
	Describe(m, 24*time.Hour)
	return &Server{Addrs: []string{m.Addr()}, Embedded: m}
}

// Start runs a private redis-server with the given extra arguments. It skips the test if none is installed, or
// fails it if RequireEnv is set.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, func(port, dir string) []string {
		return append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no",
			"--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0", "--logfile", filepath.Join(dir, "log")}, args...)
	})
}

// start runs redis-server with what line makes of a free port and a fresh directory, in which it is to write "log".
func start(t testing.TB, line func(port, dir string) []string) *Server {
	t.Helper()
	bin := binary(t)
	for try := 0; ; try++ {
		port := freePort(t)
		dir := t.TempDir()
		s, err := launch(t, bin, port, dir, line(strconv.Itoa(port), dir))
		if err == nil {
			return s
		}
		if try == 4 { // another process may take the port between our look and the server's bind
			t.Fatalf("redistest: start redis-server: %v", err)
		}
	}
}

// Each runs fn on the embedded server and on a real one.
func Each(t *testing.T, fn func(t *testing.T, s *Server)) {
	t.Run("embedded", func(t *testing.T) { fn(t, Embedded(t)) })
	t.Run("redis", func(t *testing.T) { fn(t, Start(t)) })
}

func binary(t testing.TB) string {
	t.Helper()
	bin, err := exec.LookPath("redis-server")
	if err == nil {
		return bin
	}
	if os.Getenv(RequireEnv) == "1" {
		t.Fatalf("redistest: %s=1 and no redis-server in PATH", RequireEnv)
	}
	t.Skip("no redis-server in PATH; install one to run this test")
	return ""
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: no free port: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func launch(t testing.TB, bin string, port int, dir string, args []string) (*Server, error) {
	cmd := exec.Command(bin, args...)
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	stop := func() {
		cmd.Process.Signal(syscall.SIGCONT) // a test may have stopped it
		cmd.Process.Kill()
		<-exited
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	deadline := time.Now().Add(10 * time.Second)
	for {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			c.SetDeadline(time.Now().Add(time.Second))
			fmt.Fprint(c, "PING\r\n")
			b := make([]byte, 64)
			n, _ := c.Read(b)
			c.Close()
			if strings.HasPrefix(string(b[:n]), "+PONG") {
				break
			}
		}
		select {
		case <-exited:
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			return nil, fmt.Errorf("redis-server ended at once: %s", log)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			stop()
			return nil, fmt.Errorf("redis-server on %s does not answer", addr)
		}
	}
	t.Cleanup(stop)
	return &Server{Addrs: []string{addr}, Process: cmd.Process}, nil
}

// Option is the client configuration that reaches s; change it before use where a test needs to.
func (s *Server) Option() rueidis.ClientOption {
	o := rueidis.ClientOption{InitAddress: s.Addrs, DialCtxFn: s.dial}
	o.Sentinel.MasterSet = s.set
	if s.Embedded != nil {
		o.ForceSingleClient, o.DisableCache = true, true // miniredis has neither CLUSTER nor CLIENT TRACKING
	}
	return o
}

// Client connects with s.Option and closes with the test.
func (s *Server) Client(t testing.TB) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(s.Option())
	if err != nil {
		t.Fatalf("redistest: connect to %v: %v", s.Addrs, err)
	}
	t.Cleanup(c.Close)
	return c
}

// CommandCalls returns INFO commandstats as command -> calls, commands run inside scripts included.
func CommandCalls(t testing.TB, c rueidis.Client) map[string]int {
	t.Helper()
	text, err := c.Do(context.Background(), c.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		t.Fatalf("redistest: INFO commandstats: %v", err)
	}
	calls := map[string]int{}
	for line := range strings.Lines(text) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			calls[name], _ = strconv.Atoi(n)
		}
	}
	return calls
}

// Eventually polls ok until it holds, and fails the test with what if it does not within limit.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
