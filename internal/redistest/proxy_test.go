package redistest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// through is a client behind a proxy on a private server, and one beside it.
func through(t *testing.T,
	change ...func(*rueidis.ClientOption)) (p *redistest.Proxy, behind, beside rueidis.Client, s *redistest.Server) {
	t.Helper()
	s = redistest.Start(t)
	p = redistest.NewProxy(t, s)
	o := p.Server().Option()
	o.DisableRetry = true
	for _, f := range change {
		f(&o)
	}
	behind = redistest.NoError(rueidis.NewClient(o))(t)
	t.Cleanup(behind.Close)
	return p, behind, s.Client(t), s
}

// oneConnection, once used, is there for the next call: a call that must dial first is not sent to a server that is
// away.
func oneConnection(o *rueidis.ClientOption) { o.PipelineMultiplex = -1 }

func short(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func incr(ctx context.Context, c rueidis.Client, key string) error {
	return c.Do(ctx, c.B().Incr().Key(key).Build()).Error()
}

// begun is a call that is under way. No clock of its own ends it soon: a call whose time was over before it was sent
// would meet none of the proxy's faults.
func begun(t *testing.T, c rueidis.Client, key string) (done chan error) {
	done = make(chan error, 1)
	go func() { done <- incr(short(t, 20*time.Second), c, key) }()
	return done
}

func value(t *testing.T, c rueidis.Client, key string) int64 {
	t.Helper()
	n, err := c.Do(short(t, 10*time.Second), c.B().Get().Key(key).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0
	}
	require.NoError(t, err)
	return n
}

func TestProxy_Trap_DecidesTheFateOfOneCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fate     redistest.Fate
		runs     int64 // when the trap has caught the call
		silent   bool  // the caller hears nothing before Heal
		released int64 // how often it has run when a kept call is let go; 0: it is lost
	}{
		{redistest.LoseReply, 1, false, 0}, {redistest.LoseReplySilently, 1, true, 0},
		{redistest.LoseRequest, 0, false, 0}, {redistest.LoseRequestSilently, 0, true, 0},
		{redistest.HoldRequest, 0, true, 1}, {redistest.HoldReply, 1, true, 1},
		{redistest.RunTwice, 2, false, 2},
	} {
		t.Run(fmt.Sprint(c.fate), func(t *testing.T) {
			t.Parallel()
			p, behind, beside, _ := through(t, oneConnection)
			for i := range 20 {
				key, release := fmt.Sprintf("k%d", i), make(chan struct{})
				require.NoError(t, incr(short(t, 20*time.Second), behind, "other"))
				trap := p.Trap(&redistest.Trap{Match: redistest.With(key), Fate: c.fate, Release: release})
				done := begun(t, behind, key)
				trap.Wait(t)
				if c.silent {
					time.Sleep(time.Millisecond)
					require.Empty(t, done)
				} else {
					require.Equal(t, c.released > 0, <-done == nil)
				}
				require.Equal(t, c.runs, value(t, beside, key))
				close(release)
				if c.silent && c.released > 0 {
					require.NoError(t, <-done)
				}
				p.Heal()
				if c.silent && c.released == 0 {
					require.Error(t, <-done)
				}
				require.NoError(t, incr(short(t, 20*time.Second), behind, key), "the trap is gone")
				require.Equal(t, max(c.runs, c.released)+1, value(t, beside, key))
			}
			require.EqualValues(t, 20, value(t, beside, "other"))
		})
	}
}

func TestProxy_LostReply_LosesThoseBehindIt(t *testing.T) {
	t.Parallel()
	p, _, beside, _ := through(t)
	for i := range 20 {
		marked := fmt.Sprintf("marked%d", i)
		p.Trap(&redistest.Trap{Match: redistest.With("INCR", marked)})
		// rueidis would report all of a pipeline as failed
		conn := redistest.NoError(net.Dial("tcp", p.Addr()))(t)
		call := func(words ...string) (b []byte) {
			b = fmt.Appendf(b, "*%d\r\n", len(words))
			for _, w := range words {
				b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
			}
			return b
		}
		_, err := conn.Write(slices.Concat(bytes.Repeat(call("PING"), 100), call("INCR", marked), call("INCR", "after")))
		require.NoError(t, err)
		got, err := io.ReadAll(conn)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Equal(t, strings.Repeat("+PONG\r\n", 100), string(got))
		require.NoError(t, conn.Close())
		require.EqualValues(t, 1, value(t, beside, marked))
	}
}

func TestProxy_Direction_IsLostOrLate(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		fault func(p *redistest.Proxy)
		ran   int64 // before Heal; the first has run already
		lost  bool
	}{
		"a black hole up":   {func(p *redistest.Proxy) { p.BlackHole(redistest.Up) }, 1, true},
		"a black hole down": {func(p *redistest.Proxy) { p.BlackHole(redistest.Down) }, 2, true},
		"held on its way":   {func(p *redistest.Proxy) { p.Hold(redistest.Up) }, 1, false},
		"refused": {func(p *redistest.Proxy) {
			p.Refuse()
			require.Positive(t, p.Cut())
		}, 1, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p, behind, beside, _ := through(t, oneConnection)
			require.NoError(t, incr(short(t, 20*time.Second), behind, "k"))
			c.fault(p)
			done := begun(t, behind, "k")
			redistest.Eventually(t, 10*time.Second, "the server ran what reached it", func() bool {
				return value(t, beside, "k") == c.ran
			})
			if what != "refused" {
				time.Sleep(20 * time.Millisecond)
				require.Empty(t, done)
			}
			p.Heal()
			require.Equal(t, c.lost, <-done != nil)
			redistest.Eventually(t, 20*time.Second, "healed", func() bool {
				return incr(short(t, time.Second), behind, "healed") == nil
			})
			if c.lost {
				require.Equal(t, c.ran, value(t, beside, "k"))
			}
		})
	}
}

// A connection that is accepted while Refuse and Cut are called ends, too.
func TestProxy_RefuseAndCutDuringADial_LeaveNoConnection(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t))
	for range 200 {
		conn := redistest.NoError(net.Dial("tcp", p.Addr()))(t) // the proxy now dials the server
		p.Refuse()
		p.Cut()
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, err := conn.Read(make([]byte, 1))
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection lives")
		conn.Close()
		p.Heal()
	}
}

func TestProxy_Delay_IsAddedOnce(t *testing.T) {
	t.Parallel()
	p, behind, _, _ := through(t)
	ctx := short(t, 20*time.Second)
	require.NoError(t, incr(ctx, behind, "k"))
	p.Delay(30*time.Millisecond, 20*time.Millisecond)
	began := time.Now()
	var wg sync.WaitGroup
	for range 500 {
		wg.Go(func() {
			if err := incr(ctx, behind, "k"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	require.GreaterOrEqual(t, took, 50*time.Millisecond)
	require.Less(t, took, 500*50*time.Millisecond/2)
}

func TestProxy_SwallowedPushes_LeaveReplies(t *testing.T) {
	t.Parallel()
	for name, resp2 := range map[string]bool{"RESP3": false, "RESP2": true} {
		t.Run(name, func(t *testing.T) {
			p, behind, beside, _ := through(t, func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = resp2, resp2 })
			ctx := short(t, 20*time.Second)
			var heard atomic.Int32
			confirmed := make(chan struct{}, 10)
			conn, release := behind.Dedicate()
			defer release()
			conn.SetPubSubHooks(rueidis.PubSubHooks{
				OnMessage:      func(rueidis.PubSubMessage) { heard.Add(1) },
				OnSubscription: func(rueidis.PubSubSubscription) { confirmed <- struct{}{} },
			})
			require.NoError(t, conn.Do(ctx, conn.B().Subscribe().Channel("c").Build()).Error())
			<-confirmed
			publish := func() {
				require.NoError(t, beside.Do(ctx, beside.B().Publish().Channel("c").Message("m").Build()).Error())
			}
			publish()
			redistest.Eventually(t, 10*time.Second, "heard", func() bool { return heard.Load() == 1 })
			p.SwallowPushes()
			for range 10 {
				publish()
			}
			redistest.Eventually(t, 10*time.Second, "swallowed", func() bool { return p.Swallowed() == 10 })
			require.NoError(t, conn.Do(ctx, conn.B().Subscribe().Channel("d").Build()).Error())
			<-confirmed
			require.NoError(t, incr(ctx, behind, "k"))
			require.EqualValues(t, 1, heard.Load())
			p.Heal()
			publish()
			redistest.Eventually(t, 10*time.Second, "heard again", func() bool { return heard.Load() == 2 })
		})
	}
}

func TestProxy_StoppedServer_RunsWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	// The proxy must not hide this: a reset would throw away what the server has not read.
	p, _, beside, s := through(t)
	conn := redistest.NoError(net.Dial("tcp", p.Addr()))(t)
	fmt.Fprint(conn, "INCR k\r\n")
	redistest.Eventually(t, 10*time.Second, "the first call ran", func() bool { return value(t, beside, "k") == 1 })
	_, err := io.ReadFull(conn, make([]byte, len(":1\r\n"))) // what is unread would make the close a reset
	require.NoError(t, err)
	s.Stop(t)
	fmt.Fprint(conn, "INCR k\r\n")
	require.NoError(t, conn.Close())
	s.Resume(t)
	redistest.Eventually(t, 10*time.Second, "the abandoned call ran", func() bool { return value(t, beside, "k") == 2 })
}

func TestProxy_AnyChunks_KeepsFramesWhole(t *testing.T) {
	t.Parallel()
	l := redistest.NoError(redistest.Listen())(t)
	defer l.Close()
	p := redistest.NewProxy(t, &redistest.Server{Addrs: []string{l.Addr().String()}})
	client := redistest.NoError(net.Dial("tcp", p.Addr()))(t)
	defer client.Close()
	server := redistest.NoError(l.Accept())(t)
	defer server.Close()
	p.SwallowPushes()
	replies := "+OK\r\n" + ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\n\r\n\r\n" + "*2\r\n:1\r\n%1\r\n+k\r\n*1\r\n$-1\r\n" +
		">2\r\n+invalidate\r\n_\r\n" +
		"|1\r\n+a\r\n,1.5\r\n$3\r\nabc\r\n" + ">3\r\n+subscribe\r\n+c\r\n:1\r\n" + "*-1\r\n" + "=7\r\ntxt:abc\r\n" + "#t\r\n"
	want := "+OK\r\n" + "*2\r\n:1\r\n%1\r\n+k\r\n*1\r\n$-1\r\n" + "|1\r\n+a\r\n,1.5\r\n$3\r\nabc\r\n" +
		">3\r\n+subscribe\r\n+c\r\n:1\r\n" + "*-1\r\n" + "=7\r\ntxt:abc\r\n" + "#t\r\n"
	go func() {
		for i := range len(replies) {
			server.Write([]byte{replies[i]})
			if i%7 == 0 {
				time.Sleep(time.Millisecond) // so that chunks end everywhere
			}
		}
		server.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(client)
	require.NoError(t, err, "a FIN is passed on as a FIN")
	require.Equal(t, want, string(got))
	require.Equal(t, 2, p.Swallowed())
}

// A byte stream that has lost something says nothing any more: a reply that passed a moment after the Heal would be
// taken for that of the call whose own was lost.
func TestProxy_LostBytes_NothingPassesAfterwards(t *testing.T) {
	t.Parallel()
	const connections = 64 // Heal takes a while to reset so many
	echo := func(w string) string { return fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$4\r\n%s\r\n", w) }
	s := redistest.Start(t)
	for _, d := range []redistest.Direction{redistest.Up, redistest.Down} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			p := redistest.NewProxy(t, s)
			for range redistest.Sized(4, 4, 10) {
				var conns []net.Conn
				answer := make([]byte, 256)
				for range connections {
					conn := redistest.NoError(net.Dial("tcp", p.Addr()))(t)
					defer conn.Close()
					fmt.Fprint(conn, echo("here"))
					redistest.NoError(conn.Read(answer))(t)
					conns = append(conns, conn)
				}
				p.BlackHole(d)
				for _, conn := range conns {
					fmt.Fprint(conn, echo("lost"))
				}
				time.Sleep(10 * time.Millisecond)
				var writing sync.WaitGroup
				for _, conn := range conns {
					writing.Go(func() {
						for range 50 {
							if _, err := fmt.Fprint(conn, echo("next")); err != nil {
								return
							}
						}
					})
				}
				p.Heal()
				for _, conn := range conns {
					n, _ := conn.Read(answer)
					if !bytes.Contains(answer[:n], []byte("lost")) { // it may have been slower than the Heal
						require.NotContains(t, string(answer[:n]), "next")
					}
				}
				writing.Wait()
			}
		})
	}
}
