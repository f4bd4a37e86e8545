package script_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// stuck is a connection whose writes stop at the given word until the test lets them go on, however dead the connection
// is by then: a writer that the scheduler has passed over.
type stuck struct {
	net.Conn
	at      string
	reached chan struct{} // closed when the word has come
	broken  chan struct{} // then the reader sees the end of the connection
	proceed chan struct{} // then the writer goes on
	done    chan struct{} // closed when it has written its last

	mu    sync.Mutex
	after strings.Builder // what is written from then on
}

func (c *stuck) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.reached:
		<-c.broken
		return 0, io.EOF
	default:
		return n, err
	}
}

func (c *stuck) Write(p []byte) (int, error) {
	select {
	case <-c.reached:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.after.Write(p)
		if strings.Contains(c.after.String(), "PING") { // by which rueidis ends a writer
			select {
			case <-c.done:
			default:
				close(c.done)
			}
		}
		return len(p), nil
	default:
	}
	if !strings.Contains(string(p), c.at) {
		return c.Conn.Write(p)
	}
	close(c.reached)
	c.Conn.SetReadDeadline(time.Now()) // the reader looks up
	<-c.proceed
	return len(p), nil
}

// rueidis sends a command that only reads again, unasked, if its connection ends before the reply, and recycles it when
// it is answered. The writer of the connection that has ended may still be at it, and would read the words of the next
// command while that is built: a data race, and half a string in the worst case.
func TestRead_RepeatedByRueidis_IsNotRecycled(t *testing.T) {
	srv := redistest.Start(t)
	long := strings.Repeat("k", 4096)
	for round := range 8 { // a pool need not hand out what was put in last
		conn := &stuck{at: long[:100], reached: make(chan struct{}), broken: make(chan struct{}),
			proceed: make(chan struct{}), done: make(chan struct{})}
		var dialed atomic.Int32
		o := srv.Option()
		o.AlwaysPipelining, o.PipelineMultiplex, o.WriteBufferEachConn, o.DisableCache = true, -1, 1024, true
		o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			c, err := d.DialContext(ctx, "tcp", addr)
			if err == nil && dialed.Add(1) == 1 {
				conn.Conn = c
				c = conn
			}
			return c, err
		}
		client := redistest.NoError(rueidis.NewClient(o))(t)
		r := script.NewRunner(client, time.Minute)
		got := make(chan error, 1)
		go func() {
			_, err := r.Attempt(within(t),
				script.Call{Script: script.Plain("EXISTS"), Keys: []string{long},
					Command: func(b rueidis.Builder) rueidis.Completed {
						return b.Exists().Key(long, "first", "last").Build()
					}})
			got <- err
		}()
		<-conn.reached
		close(conn.broken)
		require.NoError(t, <-got, "it was sent again on another connection")
		next := make([]rueidis.Completed, 512)
		for i := range next {
			next[i] = client.B().Arbitrary("recycled", "recycled", "recycled", "recycled").Build()
		}
		close(conn.proceed) // the words are read from here on
		select {
		case <-conn.done:
		case <-time.After(10 * time.Second):
			t.Fatal("the first writer has written nothing more")
		}
		conn.mu.Lock()
		wrote := conn.after.String()
		conn.mu.Unlock()
		require.Contains(t, wrote, "\r\n$5\r\nfirst\r\n$4\r\nlast\r\n", "round %d", round)
		client.Close()
	}
}
