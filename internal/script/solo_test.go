package script_test

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// soloRig is a runner whose solo calls may have a connection. All other calls share one.
type soloRig struct {
	t      *testing.T
	client rueidis.Client
	run    *script.Runner
	dials  *errs.Dials
	eye    rueidis.Client // another client of the server
}

func newSoloRig(t *testing.T, server *redistest.Server, way *redistest.Server, callTimeout time.Duration) *soloRig {
	rig := &soloRig{t: t, dials: new(errs.Dials), eye: server.Client(t)}
	option := way.Option()
	option.PipelineMultiplex = -1
	option.DialCtxFn = func(ctx context.Context, to string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return rig.dials.Dial(func() (net.Conn, error) { return dialer.DialContext(ctx, "tcp", to) })
	}
	rig.client = redistest.NoError(rueidis.NewClient(option))(t)
	t.Cleanup(rig.client.Close)
	rig.run = script.NewRunner(rig.client, callTimeout)
	rig.run.HeedDials(rig.dials)
	rig.run.Solo = script.NewSolo(rig.client, rig.dials)
	return rig
}

// ids returns the connections on which a script was the last command, in the order in which they were made.
func (r *soloRig) ids() (ids []string) {
	r.t.Helper()
	for line := range strings.Lines(do(r.t, r.eye, "CLIENT", "LIST")) {
		id, rest, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		if strings.Contains(rest, "cmd=evalsha") || strings.Contains(rest, "cmd=eval ") {
			ids = append(ids, id)
		}
	}
	return ids
}

// alone makes calls one after the other, of which each may find the connection lost.
func (r *soloRig) alone(count int) {
	r.t.Helper()
	for range count {
		if _, err := r.run.Attempt(within(r.t), call("k")); err != nil {
			require.True(r.t, script.NotAnswered(err), err)
		}
	}
}

// connect makes calls until solo calls have a connection, and returns the ids of both connections, the new one last.
func (r *soloRig) connect() (ids []string) {
	r.t.Helper()
	redistest.Eventually(r.t, 4*slack, "a connection for solo calls", func() bool {
		r.alone(50)
		ids = r.ids()
		return len(ids) == 2
	})
	return ids
}

func (r *soloRig) kill(which ...string) {
	r.t.Helper()
	require.NoError(r.t, r.eye.Do(within(r.t), r.eye.B().Arbitrary("CLIENT", "KILL").Args(which...).Build()).Error())
}

func TestSolo_CallsMeetNoOther_GetOneConnection(t *testing.T) {
	server := redistest.Start(t)
	rig := newSoloRig(t, server, server, 10*time.Second)
	for range 20 { // calls meet, so that their connection pipelines
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { _, _ = rig.run.Attempt(within(t), call("k")) })
		}
		all.Wait()
	}
	rig.connect()
	rig.alone(200)
	require.LessOrEqual(t, len(rig.ids()), 2)
}

func TestSolo_NoCalls_ConnectionIsClosed(t *testing.T) {
	server := redistest.Start(t)
	rig := newSoloRig(t, server, server, 10*time.Second)
	ids := rig.connect()
	redistest.Eventually(t, slack, "the connection is closed", func() bool { return !slices.Contains(rig.ids(), ids[1]) })
	require.Equal(t, ids[:1], rig.ids())
	rig.connect()
}

func TestSolo_ConnectionLost_IsMadeAgain(t *testing.T) {
	server := redistest.Start(t)
	rig := newSoloRig(t, server, server, 10*time.Second)
	rig.connect()
	rig.kill("TYPE", "normal")
	rig.connect()
}

// Nobody reads on the connection, so nobody knows yet that it is lost. A call that must run once is not made there.
// Neither is any other call once the client has begun to make a connection.
func TestSolo_ConnectionLost_IsNotUsedByCallsThatNeedIt(t *testing.T) {
	server := redistest.Start(t)
	rig := newSoloRig(t, server, server, 10*time.Second)
	once := call("k")
	once.Once = true
	for _, next := range []func() script.Call{
		func() script.Call { return once },
		func() script.Call {
			_, _ = rig.dials.Dial(func() (net.Conn, error) { return nil, nil })
			rig.alone(1) // the server replies, so that the next call is made in place
			return call("k")
		},
	} {
		ids := rig.connect()
		rig.kill("ID", ids[1])
		_, err := rig.run.Attempt(within(t), next())
		require.NoError(t, err)
	}
}

// The server has no room for another connection, so the calls go on as before.
func TestSolo_ServerIsFull_CallsShareTheConnection(t *testing.T) {
	server := redistest.Start(t)
	rig := newSoloRig(t, server, server, 10*time.Second)
	rig.alone(1)
	do(t, rig.eye, "CONFIG", "SET", "maxclients", "2")
	for range 500 {
		_, err := rig.run.Attempt(within(t), call("k"))
		require.NoError(t, err)
	}
	require.Len(t, rig.ids(), 1)
}

// A call on a connection that falls silent ends after its call timeout. Later calls are made on others.
func TestSolo_ConnectionFallsSilent_CostsOneCall(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	rig := newSoloRig(t, server, proxy.Server(), 500*time.Millisecond)
	rig.connect()
	proxy.BlackHole(redistest.Up)
	_, err := rig.run.Attempt(within(t), call("k"))
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	proxy.Heal()
	redistest.Eventually(t, 2*slack, "an answer", func() bool {
		_, err := rig.run.Attempt(within(t), call("k"))
		return err == nil
	})
	rig.connect()
}

// Calls that meet at random never meet on the connection, and all are answered.
func TestSolo_CallsMeetAtTimes_EachIsAnswered(t *testing.T) {
	server := redistest.Start(t)
	rig := newSoloRig(t, server, server, 10*time.Second)
	rig.connect()
	const each = 2000
	var all sync.WaitGroup
	before := get(t, rig.eye, "k")
	for worker := range 2 {
		all.Go(func() {
			for n := range each {
				if _, err := rig.run.Attempt(within(t), call("k")); err != nil {
					t.Error(err)
				}
				if n%100 < 50*worker {
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 2*each, get(t, rig.eye, "k")-before)
	require.LessOrEqual(t, len(rig.ids()), 2)
}

// pooled is a client that runs before at each use of rueidis' pool, and counts them.
type pooled struct {
	rueidis.Client
	before atomic.Pointer[func()]
	uses   atomic.Int32
}

func (p *pooled) use() {
	p.uses.Add(1)
	if before := p.before.Load(); before != nil {
		(*before)()
	}
}

func (p *pooled) Dedicate() (conn rueidis.DedicatedClient, release func()) {
	p.use()
	return p.Client.Dedicate()
}

func (p *pooled) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	if command.IsBlock() {
		p.use()
	}
	return p.Client.Do(ctx, command)
}

// Close comes when the connection is about to be used. The client's Close takes 200 ms for the pipelining connection,
// and then 200 ms with the mutex of rueidis' pool. A call that waited for the mutex would stop the bubble's time.
func TestSolo_Close_EndsTheUseOfThePool(t *testing.T) {
	for _, test := range []struct {
		name  string
		opens bool // the connection is there before
		use   func(calls func(count int), dials *errs.Dials)
	}{
		{"is being made", false, func(calls func(int), _ *errs.Dials) { calls(int(script.SoloAfter)) }},
		{"is asked for another PING", true, func(calls func(int), dials *errs.Dials) {
			_, _ = dials.Dial(func() (net.Conn, error) { return nil, nil })
			calls(2)
		}},
		{"was idle for long", true, func(func(int), *errs.Dials) {}},
		{"makes a call", true, func(calls func(int), _ *errs.Dials) { go calls(1) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				proxy, dials := redistest.NewProxy(t, servers[0]), new(errs.Dials)
				option := proxy.Server().Option()
				option.PipelineMultiplex = -1
				client := &pooled{Client: redistest.NoError(rueidis.NewClient(option))(t)}
				run := script.NewRunner(client, 10*time.Second)
				run.HeedDials(dials)
				run.Solo = script.NewSolo(client, dials)
				calls := func(count int) {
					for range count {
						_, _ = run.Attempt(t.Context(), call("k"))
					}
				}
				proxy.Delay(100*time.Millisecond, 100*time.Millisecond)
				calls(1) // the next is made in place
				if test.opens {
					calls(int(script.SoloAfter))
					time.Sleep(450 * time.Millisecond)
					calls(2)
					require.EqualValues(t, 2, client.uses.Load(), "to make the connection, and for a call")
				}
				reached := make(chan struct{})
				stall := sync.OnceFunc(func() {
					close(reached)
					time.Sleep(300 * time.Millisecond)
				})
				client.before.Store(&stall)
				test.use(calls, dials)
				<-reached
				run.Solo.Close()
				uses := client.uses.Load()
				calls(2)
				client.Client.Close()
				time.Sleep(3 * time.Second)
				calls(2)
				require.Equal(t, uses, client.uses.Load())
			})
		})
	}
}
