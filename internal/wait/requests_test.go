package wait_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/wait"
)

// store is a number of permits with a queue, as the scripts of a semaphore keep them, in variables: one for each owner.
type store struct {
	r       *room
	mu      sync.Mutex
	free    int
	out     map[string]bool
	queue   []wait.Grant // owners and tickets
	ticket  int64        // the last
	calls   int
	asked   int            // owners in all calls
	flying  int            // calls under way
	most    int            // ... at a time
	down    bool           // no call is answered
	lost    bool           // grants reach nobody
	foreign bool           // another program holds it
	due     time.Duration  // what a call says of ends of leases
	lease   time.Duration  // that a grant says
	slow    time.Duration  // how much longer a call takes to arrive
	back    time.Duration  // how much longer its reply takes
	order   []string       // owners as they were served
	last    string         // the last owner that was asked for
	leaving map[string]int // releases pending
	waits   map[string]int // calls of BeginWait, by owner
}

func newStore(r *room, free int) *store {
	return &store{r: r, free: free, out: map[string]bool{}, due: -1, lease: time.Minute, leaving: map[string]int{},
		waits: map[string]int{}}
}

// buyer is a waiter at a store.
type buyer struct {
	s     *store
	owner string
	own   string // its own channel
}

func (b *buyer) QueueEntry(bool) wait.QueueEntry {
	return wait.QueueEntry{Owner: b.owner, Entry: b.owner, Lease: time.Minute, Channel: b.own}
}
func (b *buyer) Taken(wait.Grant) bool { return true }
func (b *buyer) ReleaseLater(_ time.Time) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.leaving[b.owner]++
}

func (b *buyer) BeginWait(*wait.Caller) {
	time.Sleep(trip / 4) // a call for this waiter begins meanwhile
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.waits[b.owner]++
}

var errDown = fmt.Errorf("%w: down", errs.ErrUnavailable)

func (b *buyer) Ask(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	replies, err := b.RequestAll(ctx, []wait.QueueEntry{{Owner: b.owner}}, entry != nil)
	return b.Reply(replies, 0, err)
}

func (b *buyer) Reply(replies any, i int, err error) (wait.Answer, error) {
	if err != nil {
		return wait.Answer{}, err
	}
	return replies.([]wait.Answer)[i], nil
}

func (b *buyer) RequestAll(_ context.Context, all []wait.QueueEntry, enqueue bool) (any, error) {
	s, sent := b.s, time.Now()
	s.mu.Lock()
	s.calls++
	s.asked += len(all)
	s.flying++
	s.most = max(s.most, s.flying)
	slow := s.slow
	s.mu.Unlock()
	time.Sleep(trip/2 + slow)
	replies, back, due, err := s.run(all, enqueue, sent)
	time.Sleep(trip/2 + back)
	s.mu.Lock()
	s.flying--
	s.mu.Unlock()
	if err == nil {
		s.r.Served("n", nil, due)
	}
	return replies, err
}

func (s *store) run(all []wait.QueueEntry, enqueue bool,
	sent time.Time) (replies []wait.Answer, back, due time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, 0, -1, errDown
	}
	refused := false
	for _, a := range all {
		s.last = a.Owner
		at := slices.IndexFunc(s.queue, func(g wait.Grant) bool { return g.Owner == a.Owner })
		answer := wait.Answer{Left: -1, Sent: sent}
		if s.foreign {
			answer.Release = wait.OnChannel
		}
		switch {
		case s.out[a.Owner]:
			answer.Granted = true
		case s.free > 0 && len(s.queue) == 0 && !refused:
			s.take(a.Owner)
			answer.Granted = true
		case !enqueue:
			refused = true
		default:
			if at < 0 {
				s.ticket++
				at = len(s.queue)
				s.queue = append(s.queue, wait.Grant{Owner: a.Owner, Ticket: s.ticket})
			}
			answer.Ticket = s.queue[at].Ticket
		}
		replies = append(replies, answer)
	}
	s.serve()
	return replies, s.back, s.due, nil
}

// serve serves the queue in its order, and publishes one message. Called with mu held.
func (s *store) serve() {
	var told strings.Builder
	for s.free > 0 && len(s.queue) > 0 {
		head := s.queue[0]
		s.queue = s.queue[1:]
		s.take(head.Owner)
		fmt.Fprintf(&told, "%d %d %d %s", head.Ticket, s.lease.Milliseconds(), len(head.Owner), head.Owner)
	}
	if told.Len() > 0 && !s.lost {
		s.r.server.Embedded.Publish("g", "*"+told.String())
	}
}

func (s *store) take(owner string) {
	s.free--
	s.out[owner] = true
	s.order = append(s.order, owner)
}

// counted is how many calls there were, and for how many owners.
func (s *store) counted() (calls, asked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, s.asked
}

// give has somebody who is not known release so many permits.
func (s *store) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	s.serve()
}

func (s *store) request(owner string) wait.Request {
	own := &buyer{s: s, owner: owner}
	return wait.Request{Name: "n", Channel: "c", Grants: "g", MaxRunTime: time.Second, Taker: own, Watcher: own}
}

// start has so many wait, and returns where their errors come.
func (s *store) start(ctx context.Context, from, n int) chan error {
	got := make(chan error, n)
	for i := range n {
		go func() { got <- s.r.Wait(ctx, s.request(fmt.Sprintf("%05d", from+i))) }()
		synctest.Wait() // they come in this order
	}
	return got
}

func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *store) done(t *testing.T, got chan error, n int) {
	t.Helper()
	for range n {
		require.NoError(t, <-got)
	}
}

func TestQueueRequests_NobodyWaits_RequestsGoOutTogether(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		s := newStore(r, 100)
		began := time.Now()
		s.done(t, s.start(t.Context(), 0, 100), 100)
		require.Equal(t, trip, time.Since(began))
		require.Equal(t, 100, s.calls)
		require.Empty(t, r.server.Embedded.PubSubChannels(""))
		require.Empty(t, s.leaving)
	})
}

// From the first that is refused on, one call at a time asks for many; and what is released is served in the order in
// which the waiters came, without another call.
func TestQueueRequests_ManyWaiters_ShareCallsAndAreServedInOrder(t *testing.T) {
	inRoomOf(t, time.Hour, func(t *testing.T, r *room) {
		const n = 1000
		s := newStore(r, 0)
		got := s.start(t.Context(), 0, 1)
		time.Sleep(100 * trip)
		s.set(func() { s.most, s.calls = 0, 0 })
		more := s.start(t.Context(), 1, n-1)
		time.Sleep(100 * trip)
		s.set(func() {
			require.Len(t, s.queue, n)
			require.Equal(t, 1, s.most)
			require.LessOrEqual(t, s.calls, n/128+3)
		})
		calls, _ := s.counted()
		for range n / 10 {
			s.give(10)
			time.Sleep(trip)
		}
		s.done(t, got, 1)
		s.done(t, more, n-1)
		now, _ := s.counted()
		require.Equal(t, calls, now)
		require.True(t, slices.IsSorted(s.order))
		require.Empty(t, s.leaving)
		require.Len(t, s.waits, n)
		for owner, count := range s.waits {
			require.Equal(t, 1, count, "%s: BeginWait is called once for each wait", owner)
		}
	})
}

func TestQueueRequests_Outage_AsksOneAtATimeAndRecovers(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		const n = 300
		s := newStore(r, 0)
		got := s.start(t.Context(), 0, n)
		time.Sleep(100 * trip)
		s.set(func() { s.down, s.calls, s.most, s.queue = true, 0, 0, nil })
		time.Sleep(20 * pollCap)
		s.set(func() {
			require.Equal(t, 1, s.most)
			require.LessOrEqual(t, s.calls, 200, "one for each pause between tries")
			s.down, s.free, s.calls = false, n, 0
		})
		began := time.Now()
		s.done(t, got, n)
		require.LessOrEqual(t, time.Since(began), 2*pollCap)
		calls, _ := s.counted()
		require.LessOrEqual(t, calls, 2*(n/128+1))
	})
}

// After a gap in the messages all ask, in batches, and what is granted meanwhile is confirmed.
func TestQueueRequests_GapInMessages_AsksAgainInBatches(t *testing.T) {
	inRoomOf(t, time.Hour, func(t *testing.T, r *room) {
		s := newStore(r, 0)
		got := s.start(t.Context(), 0, 200)
		time.Sleep(100 * trip)
		s.set(func() { s.lost, s.calls = true, 0 })
		s.give(100)
		r.cut(t)
		s.done(t, got, 100)
		calls, _ := s.counted()
		require.LessOrEqual(t, calls, 4)
		s.set(func() { s.lost = false })
		time.Sleep(100 * trip)
		s.give(100)
		s.done(t, got, 100)
	})
}

// askSlowly has calls take long from now on, and returns when one is under way.
func (s *store) askSlowly() {
	s.set(func() { s.slow, s.calls = 20*pollCap, 0 })
	for calls := 0; calls == 0; time.Sleep(trip) {
		calls, _ = s.counted()
	}
}

// What is granted may be released before the request arrives, which would take it anew.
func TestGrant_WaiterIsAskedFor_IsNotUsedYet(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		s := newStore(r, 0)
		got := s.start(t.Context(), 0, 1)
		time.Sleep(100 * trip)
		s.askSlowly()
		s.give(1)
		time.Sleep(pollCap)
		require.Empty(t, got)
		s.done(t, got, 1)
		require.Empty(t, s.leaving)
	})
}

// Who leaves while it is asked for may be granted that.
func TestQueueRequests_LeaverIsAskedFor_OwesARelease(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		s := newStore(r, 0)
		ctx, cancel := context.WithCancel(t.Context())
		got := s.start(ctx, 0, 3)
		time.Sleep(100 * trip)
		s.askSlowly()
		cancel()
		for range 3 {
			var g *wait.GaveUp
			require.ErrorAs(t, <-got, &g)
			require.ErrorIs(t, g.Cause, context.Canceled)
		}
		require.Len(t, s.leaving, 3)
		time.Sleep(30 * pollCap)
	})
}

// The timer of the next end of a lease is one, and asks for one waiter.
func TestQueueRequests_LeaseEnds_AsksForOneWaiter(t *testing.T) {
	inRoomOf(t, time.Hour, func(t *testing.T, r *room) {
		s := newStore(r, 0)
		s.due = 5 * time.Second
		got := s.start(t.Context(), 0, 200)
		time.Sleep(100 * trip)
		s.set(func() { s.calls, s.asked, s.free, s.due = 0, 0, 200, -1 })
		began := time.Now()
		s.done(t, got, 200)
		require.InDelta(t, 5, time.Since(began).Seconds(), 0.5)
		calls, asked := s.counted()
		require.Equal(t, []int{1, 1}, []int{calls, asked})
	})
}

// "0 <ms> <owner>" gives a process the timer; "0 0 <owner>" has that very waiter ask.
func TestQueueRequests_TicketZero_SetsTheTimerOrAsks(t *testing.T) {
	inRoomOf(t, time.Hour, func(t *testing.T, r *room) {
		s := newStore(r, 0)
		got := s.start(t.Context(), 0, 3)
		time.Sleep(100 * trip)
		for message, after := range map[string]time.Duration{"*0 5000 5 00001": 5 * time.Second, "*0 0 5 00002": 0,
			"0 0 00001": 0} {
			s.set(func() { s.asked = 0 })
			r.server.Embedded.Publish("g", message)
			if after > 0 {
				time.Sleep(after - 10*trip)
				_, asked := s.counted()
				require.Zero(t, asked, message)
			}
			time.Sleep(20 * trip)
			_, asked := s.counted()
			require.Equal(t, 1, asked, message)
		}
		for _, garbage := range []string{"*", "*1", "*1 2 3", "*1 2 99 00001", "*1 2 -1 00001", "*1 2 x 00001",
			"*x 2 5 00001"} {
			r.server.Embedded.Publish("g", garbage)
		}
		time.Sleep(10 * trip)
		require.Empty(t, got)
		s.give(3)
		s.done(t, got, 3)
	})
}

// Grants that this process' own calls were told of need no message.
func TestQueueRequests_GrantInOwnReply_NeedsNoMessage(t *testing.T) {
	inRoomOf(t, time.Hour, func(t *testing.T, r *room) {
		s := newStore(r, 0)
		got := s.start(t.Context(), 0, 2)
		time.Sleep(100 * trip)
		r.Served("n", []wait.Grant{{Owner: "00001", Sent: time.Now(), Lease: time.Minute}}, -1)
		s.done(t, got, 1)
		s.set(func() { s.calls, s.free, s.queue = 0, 2, nil })
		r.PollAll("n")
		s.done(t, got, 1)
		calls, _ := s.counted()
		require.Equal(t, 1, calls)
	})
}

// A process that may not hear grants has no places. Its waiters are served in their order, by polls and its own
// releases.
func TestQueueRequests_MayNotHearGrants_ServesByPollsInOrder(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.refuse("", "NOPERM this user has no permissions to access the channel")
		s := newStore(r, 0)
		first := s.start(t.Context(), 0, 1)
		time.Sleep(100 * trip)
		got := s.start(t.Context(), 1, 299)
		time.Sleep(100 * trip)
		require.Empty(t, s.queue)
		s.give(150)
		began := time.Now()
		s.done(t, first, 1)
		s.done(t, got, 149)
		require.LessOrEqual(t, time.Since(began), 2*pollCap)
		time.Sleep(10 * trip)
		s.set(func() { s.free = 150 })
		began = time.Now()
		r.Wake("n")
		s.done(t, got, 150)
		require.LessOrEqual(t, time.Since(began), 10*trip)
		require.True(t, slices.IsSorted(s.order))
		time.Sleep(trip) // the last call ends
	})
}

func TestQueueRequests_FinalError_EndsTheWaitOfItsBatch(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		s := newStore(r, 0)
		got := s.start(t.Context(), 0, 2)
		time.Sleep(100 * trip)
		bad := errors.New("bad")
		go func() {
			got <- r.Wait(t.Context(),
				wait.Request{Name: "n", Channel: "c", Grants: "g", Taker: &failing{buyer{s: s, owner: "x"}, bad}})
		}()
		require.ErrorIs(t, <-got, bad)
		s.give(2)
		s.done(t, got, 2)
	})
}

// failing is a waiter whose own requests fail.
type failing struct {
	buyer
	err error
}

func (f *failing) RequestAll(context.Context, []wait.QueueEntry, bool) (any, error) {
	return nil, f.err
}
