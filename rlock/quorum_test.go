package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// quorumServers is the servers of a Quorum.
type quorumServers []*redistest.Server

// started are so many servers that are starting. What they are for is to wait until they vote; started before a test is
// declared parallel, they mostly do by then.
func started(t testing.TB, n int) (servers quorumServers) {
	t.Helper()
	for range n {
		servers = append(servers, redistest.Start(t))
	}
	return servers
}

// votingFor waits until the servers vote for leases of that length or less.
func (servers quorumServers) votingFor(t testing.TB, lease time.Duration) quorumServers {
	t.Helper()
	for _, s := range servers {
		redistest.Eventually(t, 60*time.Second, "up for a second longer", func() bool {
			return uptime(t, s) >= 1+int(lease.Seconds())
		})
	}
	return servers
}

// simulated runs fn in a bubble with n servers that vote.
func simulated(t *testing.T, n int, fn func(t *testing.T, servers quorumServers)) {
	t.Helper()
	redistest.Simulated(t, n, func(t *testing.T, servers []*redistest.Server) { fn(t, servers) })
}

func embedded(t testing.TB, n int) (servers quorumServers) {
	for range n {
		servers = append(servers, redistest.Embedded(t))
	}
	return servers
}

func uptime(t testing.TB, s *redistest.Server) (n int) {
	c := s.Client(t)
	defer c.Close()
	info, err := c.Do(within(t), c.B().Info().Section("server").Build()).ToString()
	require.NoError(t, err)
	_, rest, _ := strings.Cut(info, "uptime_in_seconds:")
	fmt.Sscan(rest, &n)
	return n
}

// process is a process that uses a Quorum: a rig for each server, behind a proxy where there are any.
type process struct {
	rigs    []*rig
	proxies []*redistest.Proxy
}

func (servers quorumServers) process(t testing.TB, o rlock.Options) *process {
	t.Helper()
	p := &process{}
	for _, s := range servers {
		p.rigs = append(p.rigs, newRig(t, s, o))
	}
	return p
}

func (servers quorumServers) behindProxies(t testing.TB, o rlock.Options) *process {
	t.Helper()
	p := &process{}
	for _, s := range servers {
		proxy := redistest.NewProxy(t, s)
		p.proxies = append(p.proxies, proxy)
		p.rigs = append(p.rigs, newRig(t, proxy.Server(), o))
	}
	t.Cleanup(func() { // before the clients close, who wait for answers
		for i, s := range servers {
			p.proxies[i].Heal()
			if s.Process != nil {
				s.Process.Signal(redistest.SigCont)
			}
		}
	})
	return p
}

func (p *process) lock(t testing.TB, name string) *rlock.Lock {
	t.Helper()
	var members []*rlock.Lock
	for _, r := range p.rigs {
		members = append(members, r.locks.Reentrant(name))
	}
	q, err := rlock.Quorum(members...)
	require.NoError(t, err)
	return q
}

// votes is how many servers have somebody in name.
func (servers quorumServers) votes(t testing.TB, name string) (n int) {
	t.Helper()
	for _, s := range servers {
		c := s.Client(t)
		m, err := c.Do(within(t), c.B().Hgetall().Key(name).Build()).AsStrMap()
		require.NoError(t, err)
		n += len(m)
		c.Close()
	}
	return n
}

func (servers quorumServers) empty(t testing.TB, name string) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "all given back", func() bool { return servers.votes(t, name) == 0 })
}

// steady options are for holds that are to last: a busy machine keeps renewals for a second or two.
var steady = rlock.Options{WatchdogTimeout: 4 * time.Second, CallTimeout: 500 * time.Millisecond,
	PollCap: 100 * time.Millisecond}

// quick options: a server votes after two seconds.
var quick = rlock.Options{WatchdogTimeout: 600 * time.Millisecond, CallTimeout: 200 * time.Millisecond,
	PollCap: 100 * time.Millisecond}

func TestQuorum_BadMembers_AreRefusedByName(t *testing.T) {
	t.Parallel()
	servers := embedded(t, 3)
	p := servers.process(t, rlock.Options{})
	a, b, c := p.rigs[0].locks, p.rigs[1].locks, p.rigs[2].locks
	hub, err := pubsub.New(p.rigs[0].redis, pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close(context.Background()) })
	twin, err := rlock.New(hub, rlock.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { twin.Close(context.Background()) })
	cluster := newRig(t, redistest.Cluster(t), rlock.Options{})
	r := func(c *rlock.Client) *rlock.Lock { return c.Reentrant("q") }
	for _, x := range []struct {
		name  string
		locks []*rlock.Lock
		is    error
		says  string
	}{
		{"two", []*rlock.Lock{r(a), r(b)}, redlatch.ErrInvalidOption, "2 locks, must be 3 or more"},
		{"nil", []*rlock.Lock{r(a), r(b), nil}, redlatch.ErrInvalidOption, "lock 3 is nil"},
		{"a bad name", []*rlock.Lock{r(a), r(b), c.Reentrant("}")}, redlatch.ErrInvalidName, "}"},
		{"a kind that has more than a vote", []*rlock.Lock{r(a), b.Fair("q"), r(c)}, redlatch.ErrInvalidOption,
			`lock 2, "q", is Fair`},
		{"Fenced", []*rlock.Lock{r(a), b.Fenced("q"), r(c)}, redlatch.ErrInvalidOption,
			`lock 2, "q", is Fenced, and a majority of servers gives no fencing token`},
		{"one client twice", []*rlock.Lock{r(a), r(b), a.Reentrant("other")}, redlatch.ErrInvalidOption, "locks 1 and 3"},
		{"one rueidis client twice", []*rlock.Lock{r(a), r(twin), r(c)}, redlatch.ErrInvalidOption, "locks 1 and 2"},
		{"a Cluster", []*rlock.Lock{r(a), r(b), r(cluster.locks)}, redlatch.ErrInvalidOption, "of a cluster"},
		{"a Multi", []*rlock.Lock{r(a), r(b), multi(t, r(c))}, redlatch.ErrInvalidOption, "must not be made of several"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := rlock.Quorum(x.locks...)
			require.ErrorIs(t, err, x.is)
			require.ErrorContains(t, err, x.says)
		})
	}
	q := p.lock(t, "q")
	_, err = rlock.Multi(q)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.Equal(t, "quorum(q,q,q)", q.Name())
	spin, err := rlock.Quorum(a.NonReentrant("q"), b.Spin("q", 0, 0), r(c))
	require.NoError(t, err)
	h := lock(t, spin, within(t))
	_, err = spin.Lock(h.Context(within(t)))
	require.NoError(t, err, "two of them are re-entered")
}

func TestQuorum_TwoClientsOfOneServer_IsRefused(t *testing.T) {
	t.Parallel()
	servers := embedded(t, 2)
	p := append(quorumServers{servers[0], servers[1]}, servers[1]).process(t, rlock.Options{})
	for _, name := range []string{"same", ""} {
		locks := []*rlock.Lock{p.rigs[0].locks.Reentrant("same"), p.rigs[1].locks.Reentrant("same"),
			p.rigs[2].locks.Reentrant(name + "x")}
		q, err := rlock.Quorum(locks...)
		require.NoError(t, err)
		for _, waitTime := range []time.Duration{0, time.Second} {
			_, err = q.TryLock(within(t), waitTime, 0)
			require.ErrorIs(t, err, errs.ErrInvalidOption)
			require.ErrorContains(t, err, "locks 2 and 3")
		}
	}
	for _, name := range []string{"same", "x", "samex"} {
		servers.empty(t, name)
	}
}

func TestQuorum_TwoProcesses_ExcludeAndLeaveNothing(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for _, n := range []int{3, 4, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			servers := embedded(t, n)
			p, other := servers.process(t, rlock.Options{}), servers.process(t, rlock.Options{})
			q, theirs := p.lock(t, "q"), other.lock(t, "q")
			locked, err := q.IsLocked(within(t))
			require.NoError(t, err)
			require.False(t, locked)
			h, err := q.TryLock(within(t), 0, 20*time.Second)
			require.NoError(t, err)
			locked, err = theirs.IsLocked(within(t))
			require.NoError(t, err)
			require.True(t, locked)
			require.InDelta(t, 20*time.Second, leaseOf(t, theirs), float64(10*time.Second))
			redistest.Eventually(t, 20*time.Second, "all of them, in the end", func() bool { return servers.votes(t, "q") == n })

			under := h.Context(within(t))
			again, err := q.TryLock(under, 0, 0)
			require.NoError(t, err)
			require.ErrorIs(t, h.Extend(within(t), time.Hour), errs.ErrInvalidOption,
				"a server that forgot it would vote before")
			require.NoError(t, h.Extend(within(t), 29*time.Second))
			require.Greater(t, time.Until(h.Until()), 20*time.Second)
			require.NoError(t, h.Unlock(within(t)))
			_, err = theirs.TryLock(within(t), 0, 0)
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			require.NoError(t, again.Unlock(within(t)))
			servers.empty(t, "q")
			_, ok := h.Token()
			require.False(t, ok)

			// a minority held by others costs nothing, one more is too many
			var held []*rlock.Hold
			for i := range n {
				held = append(held, lock(t, other.rigs[i].locks.Reentrant("q"), within(t)))
				if n-(i+1) >= n/2+1 {
					h, err := q.TryLock(within(t), 20*time.Second, 0) // a refused try may still have a vote for a moment
					require.NoError(t, err)
					require.NoError(t, h.Unlock(within(t)))
				} else {
					_, err := q.TryLock(within(t), 0, 0)
					require.ErrorIs(t, err, errs.ErrNotAcquired)
				}
				redistest.Eventually(t, 20*time.Second, "only what others hold", func() bool {
					return servers.votes(t, "q") == i+1
				})
			}
			for _, h := range held {
				require.NoError(t, h.Unlock(within(t)))
			}
			h = lock(t, q, within(t))
			taken, err := theirs.ForceUnlock(within(t))
			require.NoError(t, err)
			require.True(t, taken)
			require.ErrorIs(t, h.Unlock(within(t)), errs.ErrLost)
			servers.empty(t, "q")
		})
	}
}

func TestQuorum_AcquireOrRelease_IsOneCallToEachServer(t *testing.T) {
	t.Parallel()
	simulated(t, 3, func(t *testing.T, servers quorumServers) {
		p := servers.behindProxies(t, steady)
		q := p.lock(t, "q")
		require.NoError(t, lock(t, q, within(t)).Unlock(within(t))) // the servers know the scripts
		servers.empty(t, "q")
		var calls []*atomic.Int32
		for _, proxy := range p.proxies {
			calls = append(calls, looks(proxy, "q"))
		}
		for cycle := range int32(5) {
			h := lock(t, q, within(t))
			redistest.Eventually(t, 20*time.Second, "all voted", func() bool { return servers.votes(t, "q") == 3 })
			for i := range servers {
				require.Equal(t, 2*cycle+1, calls[i].Load(), "acquired %d, server %d", cycle, i)
			}
			require.NoError(t, h.Unlock(within(t)))
			servers.empty(t, "q")
			for i := range servers {
				require.Equal(t, 2*cycle+2, calls[i].Load(), "released %d, server %d", cycle, i)
			}
		}
	})
}

// fates are what can become of a server, as a process sees it.
var fates = map[string]func(t *testing.T, s *redistest.Server, p *redistest.Proxy){
	"killed":      func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { kill(t, s) },
	"stopped":     func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Stop(t) },
	"black-holed": func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.BlackHole(redistest.Up) },
	"mute":        func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.BlackHole(redistest.Down) },
	"slow": func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) {
		p.Delay(150*time.Millisecond, 150*time.Millisecond)
	},
	"restarted": func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Restart(t) },
}

func kill(t *testing.T, s *redistest.Server) {
	t.Helper()
	if s.Process == nil {
		s.Kill(t)
	} else {
		require.NoError(t, s.Process.Kill())
	}
}

func TestQuorum_MinorityOfServersFails_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	redistest.SkipShort(t)
	for fate := range fates {
		for _, n := range []int{3, 5} {
			t.Run(fmt.Sprint(fate, " of ", n), func(t *testing.T) {
				simulated(t, n, func(t *testing.T, servers quorumServers) { minorityFails(t, fate, servers) })
			})
		}
	}
}

func TestQuorum_MinorityOfProcessesFails_KeepsItsPromises(t *testing.T) {
	redistest.InFull(t, "TestQuorum_MinorityOfServersFails_KeepsItsPromises")
	trials := map[string]quorumServers{"stopped": started(t, 3), "restarted": started(t, 5), "killed": started(t, 3)}
	t.Parallel()
	redistest.SideBySide(t, trials, func(t *testing.T, fate string, servers quorumServers) {
		minorityFails(t, fate, servers.votingFor(t, 8*time.Second))
	})
}

// befall has the fate befall a server, as all see it who are behind the proxies.
func befall(t *testing.T, fate string, s *redistest.Server, proxies ...*redistest.Proxy) {
	switch {
	case fate == "stopped" && s.Process == nil:
		for _, p := range proxies {
			p.Hold(redistest.Up)
			p.Hold(redistest.Down)
		}
	case fate == "black-holed" || fate == "mute" || fate == "slow":
		for _, p := range proxies {
			fates[fate](t, s, p)
		}
	default:
		fates[fate](t, s, nil)
	}
}

func minorityFails(t *testing.T, fate string, servers quorumServers) {
	steady := steady
	// of which a busy machine may be busy with other things for half
	steady.WatchdogTimeout, steady.CallTimeout = 8*time.Second, 2*time.Second
	p, other := servers.behindProxies(t, steady), servers.behindProxies(t, steady)
	q, theirs := p.lock(t, "q"), other.lock(t, "q")
	h := lock(t, q, within(t))
	unlocked(t, h)
	unlocked(t, lock(t, theirs, within(t)))
	servers.empty(t, "q")
	h = lock(t, q, within(t))
	redistest.Eventually(t, 30*time.Second, "all voted", func() bool { return len(p.rigs) == servers.votes(t, "q") })
	for _, i := range rand.Perm(len(servers))[:(len(servers)-1)/2] {
		befall(t, fate, servers[i], p.proxies[i], other.proxies[i])
	}
	first := h.Until()
	redistest.Eventually(t, 60*time.Second, "renewed by the others for more than a lease", func() bool {
		return h.Err() != nil || h.Until().Sub(first) > 5*steady.WatchdogTimeout/4
	})
	require.NoError(t, h.Err())
	_, err := theirs.TryLock(within(t), 50*time.Millisecond, 0)
	require.Error(t, err)
	require.NotErrorIs(t, err, errs.ErrInvalidOption)
	require.NoError(t, h.Extend(within(t), steady.WatchdogTimeout))
	unlocked(t, h)
	unlocked(t, lock(t, theirs, within(t)))
}

// unlocked unlocks h. A majority says so, or says so later: a busy machine has no half second for each answer now and
// then.
func unlocked(t testing.TB, h *rlock.Hold) {
	t.Helper()
	if err := h.Unlock(within(t)); !errors.Is(err, errs.ErrUnknownOutcome) {
		require.NoError(t, err)
	}
}

func TestQuorum_OneServerDeadOrSlow_CostsNoTime(t *testing.T) {
	t.Parallel()
	for _, fate := range []string{"black-holed", "slow", "killed", "stopped"} {
		t.Run(fate, func(t *testing.T) {
			simulated(t, 3, func(t *testing.T, servers quorumServers) {
				p := servers.behindProxies(t, rlock.Options{WatchdogTimeout: 2 * time.Second, CallTimeout: 400 * time.Millisecond})
				q := p.lock(t, "q")
				unlocked(t, lock(t, q, within(t)))
				servers.empty(t, "q")
				befall(t, fate, servers[1], p.proxies[1])
				calls := looks(p.proxies[0], "q")
				const cycles = 7
				began := time.Now()
				for range cycles {
					unlocked(t, lock(t, q, within(t)))
				}
				require.Less(t, time.Since(began), 200*time.Millisecond, "all of them: not what a server has to answer one")
				require.EqualValues(t, 2*cycles, calls.Load())
			})
		})
	}
}

func TestQuorum_ServerRestarts_VotesAgainAfterALease(t *testing.T) {
	t.Parallel()
	simulated(t, 3, func(t *testing.T, servers quorumServers) {
		p, other := servers.process(t, steady), servers.process(t, steady)
		q := p.lock(t, "q")
		h := lock(t, q, within(t))
		redistest.Eventually(t, 20*time.Second, "all voted", func() bool { return servers.votes(t, "q") == 3 })
		servers[2].Restart(t)
		redistest.Eventually(t, 20*time.Second, "it is back, and empty", func() bool {
			return p.rigs[2].redis.Do(within(t), p.rigs[2].redis.B().Ping().Build()).Error() == nil
		})
		_, err := other.lock(t, "q").TryLock(within(t), 0, 0)
		require.Error(t, err)
		one := other.rigs[2].locks.Reentrant("free")
		require.NoError(t, lock(t, one, within(t)).Unlock(within(t)), "for a lock of its own it needs no age")
		redistest.Eventually(t, 30*time.Second, "it has voted again", func() bool { return servers.votes(t, "q") == 3 })
		require.GreaterOrEqual(t, uptime(t, servers[2]), 1)
		require.NoError(t, h.Err())
		// now it counts: another may go
		kill(t, servers[0])
		first := h.Until()
		redistest.Eventually(t, 20*time.Second, "renewed by the other two", func() bool {
			return h.Err() != nil || h.Until().Sub(first) > 5*steady.WatchdogTimeout/4
		})
		require.NoError(t, h.Unlock(within(t)))
	})
}

func TestQuorum_ServersJustStarted_GiveNoVote(t *testing.T) {
	t.Parallel()
	simulated(t, 3, func(t *testing.T, servers quorumServers) {
		for _, srv := range servers {
			srv.Restart(t)
		}
		o := quick
		o.WatchdogTimeout, o.CallTimeout = 5*time.Second, time.Second
		p := servers.process(t, o)
		q := p.lock(t, "q")
		_, err := q.TryLock(within(t), 0, 4*time.Second) // so each has 400 ms to answer
		require.ErrorIs(t, err, errs.ErrUnavailable)
		require.NotErrorIs(t, err, errs.ErrNotAcquired)
		require.ErrorContains(t, err, "it votes in ")
		require.Zero(t, servers.votes(t, "q"))
		h := lock(t, q, within(t))
		require.GreaterOrEqual(t, uptime(t, servers[0]), 5)
		require.NoError(t, h.Unlock(within(t)))
	})
}

// The clocks of the servers may drift apart: see Quorum.
func TestQuorum_ClocksMayDrift_TrustsLessOfTheLease(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Hour // six minutes of it are not trusted; of a lock of one server, three are not
	h, err := embedded(t, 3).process(t, rlock.Options{}).lock(t, "q").WithLease(lease).Lock(within(t))
	require.NoError(t, err)
	require.False(t, h.Until().After(time.Now().Add(lease-lease/100-2*time.Millisecond)))
	require.NoError(t, h.Unlock(within(t)))
}

// The first holder has the votes of servers 1 and 2. Server 2 restarts, and has forgotten it; server 3 is free. A vote
// of the second would make two holders.
func TestQuorum_VoteForgottenInARestart_IsNotGivenTwice(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(*rlock.Lock) *rlock.Lock{
		"as it is":           func(l *rlock.Lock) *rlock.Lock { return l },
		"planted: no uptime": rlock.PlantNoUptimeRule,
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, 3, func(t *testing.T, servers quorumServers) {
				long := quick
				long.WatchdogTimeout = 3 * time.Second
				p, other := servers.behindProxies(t, long), servers.process(t, long)
				p.proxies[2].BlackHole(redistest.Up)
				h := lock(t, plant(p.lock(t, "q")), within(t))
				p.proxies[1].BlackHole(redistest.Up) // it would be told, before anybody else
				servers[1].Restart(t)
				next := lock(t, plant(other.lock(t, "q")), within(t))
				since := time.Now()
				<-h.Done()
				if strings.HasPrefix(name, "planted") {
					require.True(t, since.Before(h.Until()), "two holders")
				} else {
					require.False(t, since.Before(h.Until()), "two holders")
					require.NoError(t, next.Unlock(within(t)))
				}
				require.Error(t, h.Unlock(within(t)))
			})
		})
	}
}

func TestQuorum_LateVote_JoinsTheHoldOrIsGivenBack(t *testing.T) {
	t.Parallel()
	servers := embedded(t, 3)
	// A vote whose reply does not come is given back after a CallTimeout, or a tenth of the lease.
	long := rlock.Options{CallTimeout: time.Minute, WatchdogTimeout: 10 * time.Minute}
	p, other := servers.behindProxies(t, long), servers.process(t, long)
	q := p.lock(t, "q")
	require.NoError(t, lock(t, q, within(t)).Unlock(within(t)))
	servers.empty(t, "q")
	for name, held := range map[string]int{"joins": 0, "is given back": 2} {
		t.Run(name, func(t *testing.T) {
			var theirs []*rlock.Hold
			for i := range held {
				theirs = append(theirs, lock(t, other.rigs[i].locks.Reentrant("q"), within(t)))
			}
			release := make(chan struct{})
			trap := p.proxies[2].Trap(&redistest.Trap{Match: redistest.With("q"), Fate: redistest.HoldReply, Release: release})
			h, err := q.TryLock(within(t), 0, 0)
			trap.Wait(t)
			others := max(held, 2) // where none is held, the two that have answered
			redistest.Eventually(t, 20*time.Second, "the vote is there, and not known here", func() bool {
				return servers.votes(t, "q") == others+1
			})
			close(release)
			if held == 0 {
				require.NoError(t, err)
				redistest.Eventually(t, 20*time.Second, "three votes", func() bool {
					return strings.Count(":"+string(h.Owner()), ",") == 2 && !strings.HasSuffix(string(h.Owner()), ",")
				})
				require.NoError(t, h.Unlock(within(t)))
				servers.empty(t, "q")
				return
			}
			require.ErrorIs(t, err, errs.ErrNotAcquired)
			redistest.Eventually(t, 20*time.Second, "given back", func() bool { return servers.votes(t, "q") == held })
			for _, h := range theirs {
				require.NoError(t, h.Unlock(within(t)))
			}
		})
	}
}

// Each takes the vote that is left and gives it back, which the others hear.
func TestQuorum_MajorityHeld_WaitersDoNotWakeEachOther(t *testing.T) {
	t.Parallel()
	simulated(t, 3, func(t *testing.T, servers quorumServers) {
		var held []*rlock.Hold
		for _, s := range servers[:2] {
			held = append(held, lock(t, newRig(t, s, rlock.Options{WatchdogTimeout: lease}).locks.Reentrant("q"), within(t)))
		}
		o := rlock.Options{WatchdogTimeout: time.Second, PollCap: 10 * time.Second}
		const waiters = 4
		got := make(chan error, waiters)
		for range waiters {
			p := servers.process(t, o)
			done := pass(t, p.lock(t, "q"))
			go func() { got <- <-done }()
		}
		for _, s := range servers {
			c := s.Client(t)
			redistest.Eventually(t, 20*time.Second, "all listen", func() bool {
				n, err := c.Do(within(t), c.B().PubsubNumsub().Channel("redisson_lock__channel:{q}").Build()).ToArray()
				if err != nil || len(n) != 2 {
					return false
				}
				count, _ := n[1].AsInt64()
				return count == waiters
			})
		}
		c := servers[2].Client(t)
		redistest.Eventually(t, 20*time.Second, "they sleep", func() bool {
			before := redistest.ScriptCalls(t, c)
			time.Sleep(500 * time.Millisecond)
			return redistest.ScriptCalls(t, c)-before < 25
		})
		released := time.Now()
		for _, h := range held {
			require.NoError(t, h.Unlock(within(t)))
		}
		for range waiters {
			require.NoError(t, <-got)
		}
		t.Logf("all served in %v", time.Since(released))
		require.Less(t, time.Since(released), 8*time.Second, "woken, not by their polls")
		servers.empty(t, "q")
	})
}

// All processes hear of a release, and ask. None of them asks again before the next one, unless votes were split.
func TestQuorum_Contended_CostsTwoRoundsOfEach(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{4, 16} {
		simulated(t, 3, func(t *testing.T, servers quorumServers) {
			var locks []*rlock.Lock
			for range processes {
				p := servers.behindProxies(t, rlock.Options{})
				for _, proxy := range p.proxies {
					away := 100*time.Microsecond + rand.N(300*time.Microsecond)
					proxy.Delay(away, away)
				}
				locks = append(locks, p.lock(t, "q"))
			}
			calls := func() (n int) {
				for _, r := range servers.process(t, rlock.Options{}).rigs {
					n += redistest.ScriptCalls(t, r.redis)
				}
				return n
			}
			var acquired atomic.Int64
			before := calls()
			ctx, stop := context.WithCancel(within(t))
			defer stop()
			var wg sync.WaitGroup
			for _, q := range locks {
				wg.Go(func() {
					for ctx.Err() == nil {
						_ = q.Do(ctx, func(context.Context) error {
							if acquired.Add(1) == 50 {
								stop()
							}
							time.Sleep(time.Millisecond)
							return nil
						})
					}
				})
			}
			wg.Wait()
			servers.empty(t, "q")
			cost := float64(calls()-before) / float64(acquired.Load())
			t.Logf("%d processes: %.1f calls an acquisition", processes, cost)
			require.Less(t, cost, 2*float64(processes*len(servers)))
		})
	}
}

// The vote that it got is given back, which that server does not confirm.
func TestQuorum_ServerFallsSilent_EndsInTime(t *testing.T) {
	t.Parallel()
	simulated(t, 3, func(t *testing.T, servers quorumServers) {
		for _, s := range servers[:2] {
			h := lock(t, newRig(t, s, rlock.Options{WatchdogTimeout: lease}).locks.Reentrant("q"), within(t))
			t.Cleanup(func() { require.NoError(t, h.Unlock(within(t))) })
		}
		p := servers.behindProxies(t, rlock.Options{WatchdogTimeout: time.Second, CallTimeout: 8 * time.Second})
		p.proxies[0].Delay(0, 30*time.Millisecond) // so that the vote comes before the refusals
		p.proxies[1].Delay(0, 30*time.Millisecond)
		release := make(chan struct{})
		trap := p.proxies[2].Trap(&redistest.Trap{Every: true, Fate: redistest.HoldRequest, Release: release,
			Match: func(words []string) bool {
				return redistest.IsScript(words) && slices.Contains(words, "redisson_lock__channel:{q}") // a release
			}})
		began := time.Now()
		_, err := p.lock(t, "q").TryLock(within(t), 500*time.Millisecond, 0)
		took := time.Since(began)
		trap.Wait(t)
		require.Error(t, err)
		require.Less(t, took, 6*time.Second, "not a whole CallTimeout more")
		close(release)
		require.NoError(t, p.rigs[2].locks.Close(within(t)), "which waits for what is given back")
		require.Equal(t, 2, servers.votes(t, "q"))
	})
}

func TestQuorum_HoldDropped_IsNotRenewedNorMended(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	servers := embedded(t, 3)
	p := servers.process(t,
		rlock.Options{WatchdogTimeout: 1500 * time.Millisecond, CallTimeout: 500 * time.Millisecond, PollCap: quick.PollCap})
	forgotten := func() (done <-chan struct{}) {
		for {
			h := lock(t, p.lock(t, "q"), within(t))
			voted := func() bool { return h.Err() != nil || servers.votes(t, "q") == 3 }
			redistest.Eventually(t, 20*time.Second, "all voted", voted)
			require.NoError(t, p.rigs[0].redis.Do(within(t), p.rigs[0].redis.B().Del().Key("q").Build()).Error())
			redistest.Eventually(t, 20*time.Second, "it is had again", voted)
			if h.Err() == nil {
				return h.Done()
			}
			h.Unlock(within(t)) // a machine so busy that its lease was over
		}
	}
	done := forgotten()
	dropped(t, "its channel is closed", func() bool { return closed(done) })
	servers.empty(t, "q")
	for _, r := range p.rigs {
		require.NoError(t, r.locks.Close(within(t)))
	}
}

func TestSeveral_ClientOfAMemberClosed_IsOver(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(p *process) *rlock.Lock{
		"Multi": func(p *process) *rlock.Lock {
			return multi(t, p.rigs[0].locks.Reentrant("q"), p.rigs[1].locks.Reentrant("q"), p.rigs[2].locks.Reentrant("q"))
		},
		"Quorum": func(p *process) *rlock.Lock { return p.lock(t, "q") },
	} {
		t.Run(name, func(t *testing.T) {
			servers := embedded(t, 3)
			p := servers.process(t, rlock.Options{})
			l := of(p)
			h := lock(t, l, within(t))
			redistest.Eventually(t, 20*time.Second, "all are held", func() bool { return servers.votes(t, "q") == 3 })
			closed := make(chan error, 1)
			go func() { closed <- p.rigs[1].locks.Close(within(t)) }()
			<-h.Done()
			require.ErrorIs(t, h.Err(), errs.ErrClosed)
			require.Empty(t, closed, "Close waits for Unlock")
			require.NoError(t, h.Unlock(within(t)))
			require.NoError(t, <-closed)
			_, err := l.Lock(within(t))
			require.ErrorIs(t, err, errs.ErrClosed)
			servers.empty(t, "q")
		})
	}
}

// A Spin lock has no channel: of these members the waiter hears nothing.
func TestQuorum_SomeOrAllMembersSpin_IsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, spin := range []int{1, 2, 3} {
		simulated(t, 3, func(t *testing.T, servers quorumServers) {
			holder, waiter := servers.process(t, rlock.Options{}), servers.process(t, rlock.Options{})
			var members []*rlock.Lock
			for i, r := range waiter.rigs {
				if (i+2)%3 < spin { // not the first, which a wait subscribes to before it finds that
					members = append(members, r.locks.Spin("q", 0, 0))
				} else {
					members = append(members, r.locks.Reentrant("q"))
				}
			}
			q, err := rlock.Quorum(members...)
			require.NoError(t, err)
			for range 2 { // at the second time it still listens to the others
				h := lock(t, holder.lock(t, "q"), within(t))
				got := pass(t, q)
				time.Sleep(time.Second)
				require.Empty(t, got)
				released := time.Now()
				require.NoError(t, h.Unlock(within(t)))
				require.NoError(t, <-got)
				require.Less(t, time.Since(released), time.Second)
			}
		})
	}
}

func TestQuorum_OwnerInAnotherProcess_IsJoined(t *testing.T) {
	t.Parallel()
	servers := embedded(t, 3)
	p, other := servers.process(t, rlock.Options{}), servers.process(t, rlock.Options{})
	h := lock(t, p.lock(t, "q"), within(t))
	redistest.Eventually(t, 20*time.Second, "all voted", func() bool { return servers.votes(t, "q") == 3 })
	theirs := other.lock(t, "q")
	joined, err := theirs.TryLock(theirs.WithOwner(within(t), h.Owner()), 0, 0)
	require.NoError(t, err)
	require.NoError(t, h.Unlock(within(t)))
	_, err = p.lock(t, "q").TryLock(within(t), 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	require.NoError(t, joined.Unlock(within(t)))
	redistest.Eventually(t, 20*time.Second, "released", func() bool { return servers.votes(t, "q") == 0 })
}
