package rlock_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// fenced is a Quorum of Fenced locks.
func (p *process) fenced(t testing.TB, name string) *rlock.Lock {
	t.Helper()
	var members []*rlock.Lock
	for _, r := range p.rigs {
		members = append(members, r.locks.Fenced(name))
	}
	q, err := rlock.Quorum(members...)
	require.NoError(t, err)
	return q
}

// mint acquires and releases q, and returns its token.
func mint(t testing.TB, q *rlock.Lock) int64 {
	t.Helper()
	h := lock(t, q, within(t))
	n, ok := h.Token()
	require.True(t, ok)
	require.NoError(t, h.Unlock(within(t)))
	return n
}

// stepBack sets the clocks of the servers back, each by another time, so that no token grows because of them.
func (servers quorumServers) stepBack(days int) {
	for i, s := range servers {
		s.Embedded.SetTime(time.Now().Add(-time.Duration(days)*24*time.Hour - time.Duration(i)*time.Hour))
	}
}

// forget restarts a server without its data, and waits until it votes.
func (servers quorumServers) forget(t testing.TB, which ...int) {
	t.Helper()
	for _, i := range which {
		servers[i].Restart(t)
	}
	time.Sleep(steady.WatchdogTimeout + 2*time.Second)
}

func TestTokensOfAQuorumGrowThroughRestartsWithoutData(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			simulated(t, n, func(t *testing.T, servers quorumServers) {
				a, b := servers.process(t, steady), servers.process(t, steady)
				last := mint(t, a.fenced(t, "q"))
				for i := range 3 * n {
					servers.stepBack(1 + i)
					q := a.fenced(t, "q")
					if i%2 == 1 {
						q = b.fenced(t, "q")
					}
					next := mint(t, q)
					require.Greater(t, next, last, "hold %d", i)
					last = next
					servers.forget(t, i%n)
				}
			})
		})
	}
}

func TestANewQuorumHasATokenWhenAllItsServersHaveAnswered(t *testing.T) {
	t.Parallel()
	simulated(t, 3, func(t *testing.T, servers quorumServers) {
		p := servers.process(t, steady)
		kill(t, servers[2])
		_, err := p.fenced(t, "q").TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.ErrorContains(t, err, "no token: 0 of 3 servers are sure of the last one")
		require.Zero(t, quorumServers(servers[:2]).votes(t, "q"), "the votes are given back")
	})
	simulated(t, 3, func(t *testing.T, servers quorumServers) {
		p := servers.process(t, steady)
		first := mint(t, p.fenced(t, "q"))
		kill(t, servers[2])
		require.Greater(t, mint(t, p.fenced(t, "q")), first, "of a known name a majority will do")
	})
}

func TestAMajorityThatForgotAsksAllForTheLastToken(t *testing.T) {
	t.Parallel()
	simulated(t, 3, func(t *testing.T, servers quorumServers) {
		p := servers.process(t, steady)
		q := p.fenced(t, "q")
		first := mint(t, q)
		servers.forget(t, 0, 1)
		servers.stepBack(1)
		second := mint(t, q)
		require.Greater(t, second, first, "the third remembers")
		servers.forget(t, 1, 2)
		servers.stepBack(2)
		kill(t, servers[0]) // which alone has the second token
		_, err := q.TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.ErrorContains(t, err, "no token")
	})
}

func TestAVoteThatJoinsAHoldKeepsItsToken(t *testing.T) {
	t.Parallel()
	simulated(t, 3, func(t *testing.T, servers quorumServers) {
		p := servers.behindProxies(t, steady)
		q := p.fenced(t, "q")
		mint(t, q)
		servers.forget(t, 2)
		p.proxies[2].Delay(20*time.Millisecond, 0)
		h := lock(t, q, within(t))
		want, _ := h.Token()
		redistest.Eventually(t, 20*time.Second, "all have kept it", func() bool {
			for _, s := range servers {
				if s.Embedded.HGet("redlatch_token:{q}", "token") != strconv.FormatInt(want, 10) {
					return false
				}
			}
			return true
		})
		require.NoError(t, h.Unlock(within(t)))
		kill(t, servers[0])
		require.Greater(t, mint(t, q), want, "the third counts again")
	})
}

func TestAQuorumWithTokensIsTwoCallsToEachServer(t *testing.T) {
	servers := started(t, 3)
	t.Parallel()
	p := servers.voting(t).process(t, quick)
	q := p.fenced(t, "q")
	mint(t, q)
	before := servers[0].Client(t)
	calls := redistest.CommandCalls(t, before)["evalsha"]
	for range 10 {
		mint(t, q)
	}
	// a vote, a token and a release, and for a vote that came late perhaps a token
	require.LessOrEqual(t, redistest.CommandCalls(t, before)["evalsha"]-calls, 60)
}

func TestQuorumTokenScriptTable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		src := source(t, "vote_token")
		record := func(token, by, run string) map[string]string {
			return map[string]string{"token": token, "by": by, "run": run}
		}
		for i, c := range []struct {
			name   string
			held   map[string]string
			before map[string]string
			args   []string
			reply  []int64
			after  map[string]string
		}{
			{"none was kept", map[string]string{alice: "1"}, nil, []string{alice, "7", "99", "60000"}, []int64{1, 7},
				record("7", alice, "99")},
			{"an earlier one was", map[string]string{alice: "1"}, record("6", bob, "98"),
				[]string{alice, "7", "99", "60000"}, []int64{1, 7}, record("7", alice, "99")},
			{"the same of another", map[string]string{alice: "1"}, record("7", bob, "98"),
				[]string{alice, "7", "99", "60000"}, []int64{2, 7}, record("7", bob, "98")},
			{"a later one", map[string]string{alice: "1"}, record("8", bob, "98"),
				[]string{alice, "7", "99", "60000"}, []int64{2, 8}, record("8", bob, "98")},
			{"its vote is over", map[string]string{bob: "1"}, record("6", bob, "98"),
				[]string{alice, "7", "99", "60000"}, []int64{0, 0}, record("6", bob, "98")},
			{"its vote is done with", map[string]string{alice: "1", alice + "!": "-99999999999999"}, nil,
				[]string{alice, "7", "99", "60000"}, []int64{0, 0}, map[string]string{}},
			{"to read", nil, record("9007199254740000", bob, "98"), nil, []int64{1, 9007199254740000},
				record("9007199254740000", bob, "98")},
		} {
			t.Run(c.name, func(t *testing.T) {
				key := fmt.Sprint("vt", i)
				tokens := "redlatch_token:{" + key + "}"
				for k, fields := range map[string]map[string]string{key: c.held, tokens: c.before} {
					for f, v := range fields {
						require.NoError(t, g.do(t, "HSET", k, f, v).Error())
					}
				}
				for again := range 2 {
					got, err := eval(t, g.c, src, []string{key, tokens}, c.args...)
					require.NoError(t, err)
					require.Equal(t, c.reply, got, "run %d", again+1)
					kept, err := g.do(t, "HGETALL", tokens).AsStrMap()
					require.NoError(t, err)
					require.Equal(t, c.after, kept)
				}
			})
		}
		require.NoError(t, g.do(t, "HSET", "redlatch_token:{bad}", "token", "1e3").Error())
		_, err := eval(t, g.c, src, []string{"bad", "redlatch_token:{bad}"})
		require.ErrorContains(t, err, "WRONGTYPE the last token is not an integer")
	})
}
