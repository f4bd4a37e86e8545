package contract_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// crowdCallTimeout is what a client of a crowd gives a request: the default.
const crowdCallTimeout = 500 * time.Millisecond

// throng is a process that waits for many objects, which another one holds.
type throng struct {
	*stage
	holder, waiter *process
	held           []grant
	attempts       []*attempt
	leave          context.CancelFunc
}

// throngOf has a process wait for n objects. mute: it may not subscribe.
func throngOf(t *testing.T, s *stage, n int, mute bool) *throng {
	t.Helper()
	x := &throng{stage: s, holder: s.open(t, redlatch.Options{}),
		waiter: s.open(t, redlatch.Options{CallTimeout: crowdCallTimeout})}
	if mute {
		x.waiter.proxies[0].Trap(&redistest.Trap{Match: redistest.Command("SUBSCRIBE"), Every: true,
			Fate: redistest.RefuseRequest, Says: func([]string) string { return "NOPERM no channels for this user" }})
	}
	ctx, leave := context.WithCancel(t.Context())
	x.leave = leave
	for i := range n {
		name := fmt.Sprint("object ", i)
		g := redistest.NoError(s.block(t.Context(), x.holder, name, terms{}))(t)
		a := &attempt{done: make(chan struct{})}
		x.held, x.attempts = append(x.held, g), append(x.attempts, a)
		go func() {
			defer close(a.done)
			a.got, a.err = s.acquire(ctx, x.waiter, name, terms{})
		}()
		time.Sleep(time.Second / time.Duration(n)) // their polls are spread as those of callers that come one by one
	}
	waitingIn(t, x.waiter, n)
	time.Sleep(3 * pollCap)
	return x
}

// ends has all callers that still wait leave.
func (x *throng) ends() {
	x.leave()
	for _, a := range x.attempts {
		<-a.done
	}
}

// scripts is how many scripts the server has run.
func scripts(t *testing.T, s *redistest.Server) int {
	t.Helper()
	return redistest.CommandCalls(t, s.Client(t))["evalsha"]
}

// inCrowds runs fn with every primitive of these names.
func inCrowds(t *testing.T, names []string, fn func(t *testing.T, s *stage)) {
	t.Parallel()
	for i, name := range names {
		if testing.Short() && i != 0 && i != len(names)-1 {
			continue
		}
		for _, p := range primitives() {
			if p.name != name {
				continue
			}
			t.Run(name, func(t *testing.T) {
				redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
					fn(t, &stage{primitive: p, servers: servers})
				})
			})
		}
	}
}

// rarely are the primitives whose waiters poll rarely in a crowd, and polled all whose waiters poll.
var (
	rarely = []string{"reentrant", "non-reentrant", "fenced", "semaphore", "weighted"}
	polled = []string{"reentrant", "non-reentrant", "fenced", "fair", "write", "plain", "spin", "semaphore", "weighted"}
)

// A process that waits for more than 64 objects asks for each of them every 10 s. It keeps its places between two
// polls, which is longer than others keep theirs, and is handed what is released.
func TestCrowd_Subscribed_PollsRarelyAndKeepsItsPlaces(t *testing.T) {
	inCrowds(t, rarely, func(t *testing.T, s *stage) {
		const n, early, polls = 100, 64, 20
		x := throngOf(t, s, n, false)
		before := scripts(t, s.servers[0])
		time.Sleep(polls * pollCap)
		asked := scripts(t, s.servers[0]) - before
		require.Less(t, asked, (early+(n-early)/9+5)*polls*11/10, "with the renewals of what is held")
		handed := func() int64 {
			return x.waiter.red[0].Locks().Stats().HandOvers + x.waiter.red[0].Semaphores().Stats().HandOvers
		}
		already := handed()
		for i, g := range x.held {
			s.released(t, g)
			s.released(t, x.attempts[i].granted(t, 20*time.Millisecond))
		}
		if s.name != "fenced" { // whose grants are all confirmed
			require.Greater(t, handed()-already, int64(early+(n-early)/2), "places of waiters that were silent for long, too")
		}
		x.ends()
	})
}

// Waiters that get no messages ask every PollCap, however many they are.
func TestCrowd_MayNotSubscribe_HasWhatIsFreeWithinPollCap(t *testing.T) {
	inCrowds(t, polled, func(t *testing.T, s *stage) {
		limit := pollCap
		if s.name == "fair" {
			limit *= 3
		}
		x := throngOf(t, s, 65, true)
		for i, g := range x.held[:9] {
			s.released(t, g)
			s.released(t, x.attempts[i].granted(t, limit+10*time.Millisecond))
		}
		x.ends()
	})
}

// The server stands still for a while. Then those that wait do not ask all at once, nor much more often than before: in
// no tenth of a second more than half of them, and in no second twice as many as there are.
func TestCrowd_ServerStalls_DoesNotAskAtOnce(t *testing.T) {
	for _, mute := range []bool{true, false} {
		for _, stall := range []time.Duration{1200 * time.Millisecond, 4 * time.Second} {
			t.Run(fmt.Sprint("mute ", mute, ", ", stall), func(t *testing.T) {
				inCrowds(t, []string{"reentrant", "semaphore"}, func(t *testing.T, s *stage) {
					const n = 80
					x := throngOf(t, s, n, mute)
					p := x.waiter.proxies[0]
					var once sync.Once
					heal := func() { once.Do(p.Heal) }
					defer heal()
					p.Hold(redistest.Up)
					time.Sleep(stall)
					before := scripts(t, s.servers[0])
					heal()
					var tenths []int
					for range 40 {
						time.Sleep(pollCap / 10)
						now := scripts(t, s.servers[0])
						tenths, before = append(tenths, now-before), now
					}
					t.Log(tenths)
					second := 0
					settled := tenths[3:] // before, the server runs what was sent, and what is late is sent again
					for i, asked := range settled {
						require.LessOrEqual(t, asked, n/2, "in tenth %d", i)
						if second += asked; i >= 10 {
							second -= settled[i-10]
						}
						require.LessOrEqual(t, second, 2*n, "in the second to tenth %d", i)
					}
					x.ends()
				})
			})
		}
	}
}
