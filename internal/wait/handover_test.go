package wait_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/wait"
)

// desk is a lock with a queue, as the scripts of rlock keep one, in variables: who is in the queue is handed the lock
// and told on channel "g".
type desk struct {
	r      *room
	mu     sync.Mutex
	holder string
	queue  []wait.Grant // owners and tickets
	ticket int64        // the last
	asked  int
	moving bool          // there is no queue to be had
	idle   time.Duration // the longest time that a process had the lock and did not know, or nobody had it
	since  time.Time     // since when; zero: its holder acts
	lost   bool          // grants reach nobody
	reply  time.Duration // how much longer an answer takes that names a place
}

// set changes a desk that is in use.
func (d *desk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// acts: whoever has the lock knows.
func (d *desk) acts() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.since.IsZero() {
		d.idle, d.since = max(d.idle, time.Since(d.since)), time.Time{}
	}
}

// look is how often it was asked, and how many are in the queue.
func (d *desk) look() (asked, queued int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked, len(d.queue)
}

// release ends the holder's hold; another process, if it is given, takes the lock at once.
func (d *desk) release(next string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holder = next
	if next != "" {
		return
	}
	d.since = time.Now()
	if len(d.queue) > 0 && !d.moving {
		head := d.queue[0]
		d.holder, d.queue = head.Owner, d.queue[1:]
		if d.lost {
			return
		}
		d.r.server.Embedded.Publish("g", fmt.Sprintf("%d 60000 %s", head.Ticket, head.Owner))
	}
}

// stander is a waiter at a desk.
type stander struct {
	d     *desk
	owner string
}

func (s *stander) QueueEntry(bool) wait.QueueEntry {
	return wait.QueueEntry{Owner: s.owner, Entry: s.owner, Lease: time.Minute}
}

const trip = time.Millisecond

func (s *stander) Ask(_ context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	d, sent := s.d, time.Now()
	time.Sleep(trip / 2)
	back := trip / 2
	defer func() { time.Sleep(back) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	place := slices.IndexFunc(d.queue, func(g wait.Grant) bool { return g.Owner == s.owner })
	switch {
	case d.holder == s.owner, d.holder == "" && (d.moving || len(d.queue) == 0 || place == 0):
		d.holder = s.owner
		d.queue = slices.DeleteFunc(d.queue, func(g wait.Grant) bool { return g.Owner == s.owner })
		return wait.Answer{Granted: true, Sent: sent}, nil
	case entry == nil || d.moving:
		return wait.Answer{Left: time.Hour, Sent: sent}, nil
	case place < 0:
		d.ticket++
		d.queue = append(d.queue, wait.Grant{Owner: s.owner, Ticket: d.ticket})
		place = len(d.queue) - 1
	}
	back += d.reply
	return wait.Answer{Left: time.Hour, Ticket: d.queue[place].Ticket, Sent: sent}, nil
}

func (s *stander) Taken(wait.Grant) bool  { return true }
func (s *stander) ReleaseLater(time.Time) {}

func (d *desk) lock(owner string) error {
	err := d.r.Wait(context.Background(), wait.Request{Name: "n", Channel: "c", Grants: "g", Taker: &stander{d, owner}})
	if err == nil {
		d.acts()
	}
	return err
}

// queueUp has somebody wait for a lock that is held, and returns when that is in the queue, with its place.
func (d *desk) queueUp(t *testing.T, owner string) (got chan error, place wait.Grant) {
	t.Helper()
	got = make(chan error, 1)
	go func() { got <- d.lock(owner) }()
	for began := time.Now(); ; time.Sleep(trip) {
		if _, queued := d.look(); queued > 0 {
			break
		}
		require.Less(t, time.Since(began), 100*trip)
	}
	d.set(func() { place = d.queue[0] })
	return got, place
}

// quit ends a hold that nobody waits for.
func (d *desk) quit() {
	d.release("")
	d.acts()
}

// A grant of an earlier place is not trusted, nor one of a later place that nobody has heard of: the waiter asks. What
// is no grant is not heeded.
func TestGrant_EarlierPlace_IsNotTrusted(t *testing.T) {
	inRoomOf(t, 10*time.Second, func(t *testing.T, r *room) {
		d := &desk{r: r, ticket: 10}
		require.NoError(t, d.lock("first"))
		got, place := d.queueUp(t, "second")
		time.Sleep(5 * trip)
		hear := func(message string) (asked int) {
			before, _ := d.look()
			r.server.Embedded.Publish("g", message)
			time.Sleep(5 * trip)
			require.Empty(t, got, "two holders, by %q", message)
			after, _ := d.look()
			return after - before
		}
		for _, ticket := range []int64{place.Ticket - 1, 1, place.Ticket + 1, 0} {
			require.Equal(t, 1, hear(fmt.Sprintf("%d 40000 second", ticket)), "ticket %d of %d", ticket, place.Ticket)
		}
		for _, garbage := range []string{"", "x", "1", "1 2", "x 2 second", "1 x second", "-1 2 second",
			fmt.Sprintf("%d 40000 secondx", place.Ticket)} {
			require.Zero(t, hear(garbage), garbage)
		}
		d.release("")
		require.NoError(t, <-got)
		require.LessOrEqual(t, d.idle, 2*trip)
		d.quit()
	})
}

// The answer that names the place is on another connection than the grant, and comes later.
func TestGrant_OvertakesItsPlace_IsUsed(t *testing.T) {
	inRoomOf(t, 10*time.Second, func(t *testing.T, r *room) {
		d := &desk{r: r, reply: 50 * trip}
		require.NoError(t, d.lock("first"))
		got, _ := d.queueUp(t, "second")
		before, _ := d.look()
		d.release("")
		time.Sleep(20 * trip)
		require.Empty(t, got, "it does not know its place")
		require.NoError(t, <-got)
		after, _ := d.look()
		require.Equal(t, before, after, "without another look")
		d.quit()
	})
}

// Messages were lost since the waiter last asked, so the queue may be one from before a failover.
func TestGrant_AfterAGap_IsConfirmed(t *testing.T) {
	inRoomOf(t, 10*time.Second, func(t *testing.T, r *room) {
		d := &desk{r: r}
		for i, gap := range []bool{false, true} {
			owner := fmt.Sprint("second ", i)
			require.NoError(t, d.lock(fmt.Sprint("first ", i)))
			got, _ := d.queueUp(t, owner)
			time.Sleep(5 * trip)
			// it looks again, is told its place, and does not hear of it yet
			d.set(func() { d.reply = 5 * time.Second })
			r.server.Embedded.Publish("g", "0 0 "+owner)
			time.Sleep(5 * trip)
			if gap {
				r.cut(t)
			}
			before, _ := d.look()
			d.release("")
			time.Sleep(5 * trip)
			require.Empty(t, got, "its look is under way")
			require.NoError(t, <-got)
			after, _ := d.look()
			if gap {
				require.Equal(t, before+1, after)
			} else {
				require.Equal(t, before, after)
			}
			d.set(func() { d.reply = 0 })
			d.quit()
		}
	})
}

// What was lost with a connection is found as soon as there is a new one.
func TestWaiters_AfterAGap_LookAtOnce(t *testing.T) {
	inRoomOf(t, 10*time.Second, func(t *testing.T, r *room) {
		d := &desk{r: r, lost: true}
		require.NoError(t, d.lock("first"))
		got, _ := d.queueUp(t, "second")
		time.Sleep(5 * trip)
		d.release("")
		time.Sleep(5 * trip)
		require.Empty(t, got, "the grant is lost")
		r.cut(t)
		began := time.Now()
		require.NoError(t, <-got)
		require.LessOrEqual(t, time.Since(began), 5*trip, "not by a poll")
		d.quit()
	})
}

// The first SUBSCRIBE of a process is under way when its own release wakes the next waiter, which finds the lock with
// another process. It must not be put into the queue then: it would be served in silence, and sleep until its poll.
func TestRelease_DuringFirstSubscribe_LeavesNoLockIdle(t *testing.T) {
	for _, held := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond,
		700 * time.Millisecond} {
		t.Run(fmt.Sprint("SUBSCRIBE takes ", held), func(t *testing.T) {
			inRoom(t, func(t *testing.T, r *room) {
				d := &desk{r: r}
				r.slow.Store(int64(held)) // what dialing for the subscription takes
				got := make(chan error)
				for _, owner := range []string{"a", "b"} {
					go func() { got <- d.lock(owner) }()
					synctest.Wait()
				}
				require.NoError(t, <-got)
				time.Sleep(trip) // the second hopes for a turn, and subscribes
				d.release("another process's")
				r.Wake("n")
				time.Sleep(3 * trip) // it has asked again
				d.release("")
				require.NoError(t, <-got)
				require.LessOrEqual(t, d.idle, held+3*trip)
			})
		})
	}
}

// Nobody of a process has the patience for an answer, after which it would listen for grants. The process listens all
// the same, so that a later caller can be handed the lock; and when there are none any more that ends.
func TestHandOver_ImpatientCallers_AreHandedTheLock(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		s := newStore(r, 0)
		r.far.Store(int64(20 * trip)) // nor for a SUBSCRIBE
		leaves := func(owner string) {
			ctx, cancel := context.WithTimeout(context.Background(), trip/4)
			defer cancel()
			require.Error(t, r.Wait(ctx, s.oneFirst(owner)))
		}
		for n := range 200 {
			leaves(fmt.Sprint(n))
		}
		require.GreaterOrEqual(t, len(s.queue), 50, "those who came when it was there have stood in the queue")
		time.Sleep(wait.Linger + 20*time.Second)
		require.Zero(t, r.server.Embedded.PubSubNumSub("g")["g"], "it ends when nobody has waited for a while")
		leaves("the last")
		time.Sleep(wait.Linger / 2)
		require.NotZero(t, r.server.Embedded.PubSubNumSub("g")["g"])
		time.Sleep(wait.Linger + 20*time.Second)
		require.Zero(t, r.server.Embedded.PubSubNumSub("g")["g"], "and when all had left before it was there")
		r.far.Store(0)
	})
}

// When nobody has waited for a while the grants are not listened for any more, which may end just as the next waiter
// comes.
func TestHandOver_GrantsUnheardForAWhile_LeavesNoLockIdle(t *testing.T) {
	for _, pause := range []time.Duration{0, wait.Linger - trip/2, wait.Linger, wait.Linger + trip/2, time.Minute} {
		t.Run(pause.String(), func(t *testing.T) {
			inRoom(t, func(t *testing.T, r *room) {
				d := &desk{r: r}
				r.slow.Store(int64(5 * trip))
				for i := range 3 {
					require.NoError(t, d.lock(fmt.Sprint("first ", i)))
					got := make(chan error)
					go func() { got <- d.lock(fmt.Sprint("second ", i)) }()
					time.Sleep(30 * trip) // it waits
					d.release("")
					require.NoError(t, <-got)
					require.LessOrEqual(t, d.idle, 5*trip)
					d.release("")
					d.acts()
					time.Sleep(pause)
				}
			})
		})
	}
}

// While its slot is being migrated a lock has no queue, and nobody is told of a release: the waiters look more often.
func TestWaiter_NoQueue_LooksMoreOften(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		d := &desk{r: r, moving: true}
		require.NoError(t, d.lock("first"))
		got := make(chan error)
		go func() { got <- d.lock("second") }()
		time.Sleep(pollCap)
		before, _ := d.look()
		time.Sleep(10 * pollCap)
		after, _ := d.look()
		require.InDelta(t, 10*20, after-before, 20)
		d.release("")
		require.NoError(t, <-got)
		require.LessOrEqual(t, d.idle, pollCap/20+2*trip)
		d.release("")
		d.set(func() { d.moving = false })
		require.NoError(t, d.lock("again"))
		got = make(chan error)
		go func() { got <- d.lock("third") }()
		time.Sleep(pollCap)
		before, _ = d.look()
		time.Sleep(10 * pollCap)
		after, _ = d.look()
		require.InDelta(t, 10, after-before, 2, "once a PollCap, where there is one")
		d.release("")
		require.NoError(t, <-got)
	})
}

// A process that may not listen for grants stands in no queue, where it would be handed the lock in silence. Its own
// releases still wake its waiters.
func TestWaiter_MayNotListen_IsInNoQueue(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.server.Embedded.SetError("NOPERM no subscriptions for you")
		d := &desk{r: r}
		got := make(chan error)
		for _, owner := range []string{"a", "b", "c"} {
			go func() { got <- d.lock(owner) }()
			synctest.Wait()
		}
		require.NoError(t, <-got)
		time.Sleep(3*pollCap + pollCap/3)
		asked, queued := d.look()
		require.Zero(t, queued)
		require.InDelta(t, 5, asked, 2)
		for range 2 {
			d.release("")
			r.Wake("n")
			require.NoError(t, <-got)
		}
		r.server.Embedded.SetError("")
	})
}

// The grants, and the places in the server's queue, of waiters that have left: what they have left behind is to be
// released at once.
func TestGrant_NobodyAwaits_IsReported(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		var told []string
		r.Unclaimed = func(owner string) { told = append(told, owner) } // with the queue's mutex held
		waits := func(owner string) (leave func()) {
			ctx, cancel := context.WithCancel(context.Background())
			d, done := &desk{r: r, holder: "another"}, make(chan error)
			go func() {
				done <- r.Wait(ctx, wait.Request{Name: "n", Channel: "c", Grants: "g", Taker: &stander{d, owner}})
			}()
			time.Sleep(100 * trip)
			return func() {
				cancel()
				require.Error(t, <-done)
			}
		}
		waits("a")()
		r.server.Embedded.Publish("g", "7 1000 a")
		synctest.Wait()
		require.Equal(t, []string{"a"}, told)
		r.server.Embedded.Publish("g", "9 1000 d")
		synctest.Wait()
		require.Equal(t, []string{"a", "d"}, told)
	})
}

// The first request of a cohort is refused before its wait begins, and the process subscribes to grants meanwhile. The
// cohort enters the server's queue at once. If it slept as a waiter in the queue does, it would be in no queue.
func TestCohort_SubscribedDuringItsFirstRequest_EntersTheQueueAtOnce(t *testing.T) {
	inRoomOf(t, 10*time.Second, func(t *testing.T, r *room) {
		d := &desk{r: r, holder: "other"}
		taker := &stander{d, "o"}
		request := wait.Request{Name: "n", QueueKey: "n", Grants: "g", Mode: wait.Cohort, Taker: taker}
		began := time.Now()
		answer, err := taker.Ask(t.Context(), nil)
		r.Listen("g")
		synctest.Wait()
		require.False(t, r.SubscribesFirst("g"))
		cohort := r.Enter(t.Context(), request)
		defer cohort.Leave()
		done, err := cohort.Tried(time.Time{}, began, answer, err)
		require.NoError(t, err)
		require.False(t, done)
		granted := make(chan error, 1)
		go func() { granted <- cohort.Contend(t.Context()) }()
		time.Sleep(2 * trip)
		_, queued := d.look()
		require.Equal(t, 1, queued)
		d.release("")
		require.NoError(t, <-granted)
		d.quit()
	})
}

// A user who may not subscribe sleeps after a refusal, so a release in its process has to find the waiter.
func TestCohort_MayNotSubscribe_WaitsBeforeItsFirstRequest(t *testing.T) {
	inRoomOf(t, 10*time.Second, func(t *testing.T, r *room) {
		require.True(t, r.SubscribesFirst("g"))
		r.server.Embedded.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			if cmd == "SUBSCRIBE" {
				c.WriteError("NOPERM this user has no permissions")
			}
			return cmd == "SUBSCRIBE"
		})
		r.Listen("g")
		synctest.Wait()
		require.False(t, r.SubscribesFirst("g"))
		time.Sleep(time.Minute)
		require.True(t, r.SubscribesFirst("g"))
	})
}
