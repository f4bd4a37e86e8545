package script_test

import (
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

// connections returns how many a server has from others than the one that asks, and on how many of these a script was run last.
func connections(t *testing.T, c rueidis.Client) (all, scripts int) {
	t.Helper()
	text, err := c.Do(within(t), c.B().ClientList().Build()).ToString()
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "cmd=client|list") {
			all++
		}
		if strings.Contains(line, "cmd=evalsha") {
			scripts++
		}
	}
	return all, scripts
}

// narrow is a client whose calls share one connection.
func narrow(t *testing.T, srv *redistest.Server) rueidis.Client {
	t.Helper()
	o := srv.Option()
	o.PipelineMultiplex = -1
	c, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// alone makes n calls one after the other.
func alone(t *testing.T, r *script.Runner, n int) {
	t.Helper()
	for range n {
		_, err := r.Attempt(within(t), call("k"))
		require.NoError(t, err)
	}
}

// Calls that are by themselves get a connection of their own after a while, and one does for all of them.
func TestCallsThatAreByThemselvesHaveAConnection(t *testing.T) {
	srv := redistest.Start(t)
	eye, r := srv.Client(t), script.NewRunner(narrow(t, srv), 10*time.Second)
	for range 20 { // they meet
		var both sync.WaitGroup
		for range 8 {
			both.Go(func() { r.Attempt(within(t), call("k")) })
		}
		both.Wait()
	}
	before, _ := connections(t, eye)
	redistest.Eventually(t, 2*slack, "a connection more", func() bool {
		alone(t, r, 50)
		now, scripts := connections(t, eye)
		return now == before+1 && scripts == 2
	})
	alone(t, r, 200)
	now, _ := connections(t, eye)
	require.Equal(t, before+1, now)
}

// A connection that is lost costs the call that finds it so, and another is made.
func TestTheConnectionOfLoneCallsIsMadeAgain(t *testing.T) {
	srv := redistest.Start(t)
	eye, r := srv.Client(t), script.NewRunner(narrow(t, srv), 10*time.Second)
	own := func() bool {
		for range 50 {
			if _, err := r.Attempt(within(t), call("k")); err != nil {
				require.True(t, script.NotAnswered(err), err)
			}
		}
		_, scripts := connections(t, eye)
		return scripts == 2
	}
	redistest.Eventually(t, 2*slack, "a connection for lone calls", own)
	require.NoError(t, eye.Do(within(t), eye.B().Arbitrary("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Build()).Error())
	redistest.Eventually(t, 2*slack, "another", own)
}

// The connection of lone calls is lost, and nobody reads on it. A call that must run once is not made there, and neither is any other once
// the client has begun to make a connection.
func TestNoLoneCallIsMadeOnAConnectionThatWasLostWithOthers(t *testing.T) {
	srv := redistest.Start(t)
	eye, r, dials := srv.Client(t), script.NewRunner(narrow(t, srv), 10*time.Second), new(atomic.Int64)
	r.HeedDials(dials)
	for _, again := range []func() error{
		func() error {
			_, err := r.Attempt(within(t), script.Call{Script: incr, Keys: []string{"k"}, Once: true})
			return err
		},
		func() error {
			dials.Add(1)
			_, err := r.Attempt(within(t), call("k"))
			return err
		},
	} {
		var ids []string
		redistest.Eventually(t, 2*slack, "a connection for lone calls", func() bool {
			for range 50 { // the first may find the last connection lost
				r.Attempt(within(t), call("k"))
			}
			ids = ids[:0]
			for line := range strings.Lines(do(t, eye, "CLIENT", "LIST")) {
				if id, rest, _ := strings.Cut(strings.TrimPrefix(line, "id="), " "); strings.Contains(rest, "cmd=evalsha") {
					ids = append(ids, id)
				}
			}
			return len(ids) == 2
		})
		require.NoError(t, eye.Do(within(t), eye.B().Arbitrary("CLIENT", "KILL", "ID", ids[1]).Build()).Error()) // the one that was made later
		require.NoError(t, again())
	}
}

// Where the server has no room for another connection, the calls go on as before.
func TestLoneCallsNeedNoConnectionOfTheirOwn(t *testing.T) {
	srv := redistest.Start(t)
	client := narrow(t, srv)
	r := script.NewRunner(client, 10*time.Second)
	alone(t, r, 1)
	do(t, client, "CONFIG", "SET", "maxclients", "1")
	alone(t, r, 500)
}

// A call on a connection that falls silent ends with its call timeout, and those after it are made on others.
func TestASilentConnectionOfLoneCallsCostsOneCall(t *testing.T) {
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv)
	eye, r := srv.Client(t), script.NewRunner(narrow(t, proxy.Server()), 500*time.Millisecond)
	redistest.Eventually(t, 2*slack, "a connection for lone calls", func() bool {
		alone(t, r, 50)
		_, scripts := connections(t, eye)
		return scripts == 2
	})
	proxy.BlackHole(redistest.Up)
	_, err := r.Attempt(within(t), call("k"))
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	proxy.Heal()
	redistest.Eventually(t, 2*slack, "an answer", func() bool {
		_, err := r.Attempt(within(t), call("k"))
		return err == nil
	})
	alone(t, r, 100)
}
