package wait_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/wait"
)

// rare is a stander whose entry on the server bears a poll every MaxPoll, if it comes in a crowd.
type rare struct {
	*stander
	down   *atomic.Bool // no request is answered
	untold *wait.Answer // what each answer says of the holder's release; nil: that it is handed over. Sent: its lease ends
}

func (s rare) QueueEntry(crowd bool) wait.QueueEntry {
	e := s.stander.QueueEntry(crowd)
	if crowd {
		e.Poll = wait.MaxPoll
	}
	return e
}

func (s rare) Ask(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	if s.down.Load() {
		return wait.Answer{}, errDown
	}
	a, err := s.stander.Ask(ctx, entry)
	if s.untold != nil {
		a.Release = s.untold.Release
		if ends := s.untold.Sent; !ends.IsZero() {
			a.Left = max(0, time.Until(ends))
		}
	}
	return a, err
}

// rareBuyer is a buyer of that kind.
type rareBuyer struct {
	*buyer
	release wait.Announcement
}

func (b rareBuyer) QueueEntry(crowd bool) wait.QueueEntry {
	e := b.buyer.QueueEntry(crowd)
	if crowd {
		e.Poll = wait.MaxPoll
	}
	return e
}

func (b rareBuyer) Ask(ctx context.Context, entry *wait.QueueEntry) (wait.Answer, error) {
	a, err := b.buyer.Ask(ctx, entry)
	a.Release = b.release
	return a, err
}

func (b rareBuyer) Reply(replies any, i int, err error) (wait.Answer, error) {
	a, err := b.buyer.Reply(replies, i, err)
	a.Release = b.release
	return a, err
}

// bystanders are waits for other keys, which nobody ever ends but they themselves.
type bystanders struct {
	r     *room
	done  chan error
	leave []context.CancelFunc
}

// add has so many more wait, each for a key of its own.
func (b *bystanders) add(n int) {
	for range n {
		d := &desk{r: b.r, holder: "another process's"}
		key := fmt.Sprint("bystander ", len(b.leave))
		ctx, cancel := context.WithCancel(context.Background())
		b.leave = append(b.leave, cancel)
		go func() {
			b.done <- b.r.Wait(ctx, wait.Request{Name: key, Channel: "c", Grants: "g", Taker: &stander{d, key}})
		}()
	}
	time.Sleep(10 * trip) // they are refused, subscribe, and have places
}

// remove has so many of them leave.
func (b *bystanders) remove(n int) {
	for range n {
		last := len(b.leave) - 1
		b.leave[last]()
		<-b.done
		b.leave = b.leave[:last]
	}
}

// crowd is a room in which so many waits go on beside those of the test, which end with fn.
func crowd(t *testing.T, n int, fn func(t *testing.T, r *room, others *bystanders)) {
	t.Helper()
	inRoom(t, func(t *testing.T, r *room) {
		others := &bystanders{r: r, done: make(chan error)}
		others.add(n)
		fn(t, r, others)
		others.remove(len(others.leave))
	})
}

// waiting is a waiter of a crowd, for a lock or a permit.
type waiting struct {
	asked func() int
	down  *atomic.Bool
	free  func(lost bool)
	got   chan error
	ended func()
}

// waiters are the two kinds. foreign, unpublished: as in an Answer.
func waiters(r *room, answer *wait.Answer) map[string]func() waiting {
	return map[string]func() waiting{
		"a lock": func() waiting {
			d := &desk{r: r, holder: "another process's"}
			x := waiting{got: make(chan error, 1), ended: d.quit, down: new(atomic.Bool)}
			go func() {
				x.got <- r.Wait(context.Background(), wait.Request{Name: "n", Channel: "c", Grants: "g",
					Taker: rare{&stander{d, "w"}, x.down, answer}})
			}()
			x.asked = func() int { n, _ := d.look(); return n }
			x.free = func(lost bool) { d.set(func() { d.lost = lost }); d.release("") }
			return x
		},
		"a permit": func() waiting {
			s := newStore(r, 0)
			x := waiting{got: make(chan error, 1), ended: func() {}}
			q := s.request("w")
			announced := wait.AsGrant
			if answer != nil {
				announced = answer.Release
			}
			q.Taker = rareBuyer{q.Taker.(*buyer), announced}
			go func() { x.got <- r.Wait(context.Background(), q) }()
			x.asked = func() int { n, _ := s.counted(); return n }
			x.free = func(lost bool) { s.set(func() { s.lost = lost }); s.give(1) }
			return x
		},
	}
}

// A waiter that is subscribed to grants polls every PollCap while its process waits for 64 keys, and every MaxPoll
// while it waits for more. What no message says costs it that, and what a message says costs it nothing.
func TestCrowd_SubscribedWaiter_PollsEveryMaxPoll(t *testing.T) {
	for others, poll := range map[int]time.Duration{63: pollCap, 64: wait.MaxPoll} {
		for _, name := range []string{"a lock", "a permit"} {
			for _, lost := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d others, message lost %v", name, others, lost), func(t *testing.T) {
					crowd(t, others, func(t *testing.T, r *room, _ *bystanders) {
						x := waiters(r, nil)[name]()
						time.Sleep(wait.MaxPoll)
						before := x.asked()
						time.Sleep(10 * poll)
						require.InDelta(t, 10, x.asked()-before, 2)
						x.free(lost)
						began := time.Now()
						require.NoError(t, <-x.got)
						if took := time.Since(began); lost {
							require.LessOrEqual(t, took, poll+trip)
						} else {
							require.LessOrEqual(t, took, trip)
						}
						x.ended()
					})
				})
			}
		}
	}
}

// polls has a waiter come, does something after it has slept on for a while, and says how long it then takes to find
// what is free by itself.
func polls(t *testing.T, name string, others int, answer *wait.Answer,
	change func(r *room, others *bystanders)) (took time.Duration) {
	crowd(t, others, func(t *testing.T, r *room, others *bystanders) {
		x := waiters(r, answer)[name]()
		time.Sleep(3 * pollCap)
		change(r, others)
		time.Sleep(2 * trip)
		x.free(true)
		began := time.Now()
		require.NoError(t, <-x.got)
		took = time.Since(began)
		x.ended()
	})
	return took
}

// The entry of a waiter that came before the crowd is dropped by the server if it sleeps on.
func TestCrowd_EarlierWaiter_PollsEveryPollCap(t *testing.T) {
	for _, name := range []string{"a lock", "a permit"} {
		require.LessOrEqual(t, polls(t, name, 0, nil, func(_ *room, others *bystanders) {
			others.add(200)
			time.Sleep(3 * pollCap)
		}), pollCap+trip, name)
	}
}

// The crowd has ended while it slept.
func TestCrowd_Ends_WaiterPollsWithinPollCap(t *testing.T) {
	for _, name := range []string{"a lock", "a permit"} {
		require.LessOrEqual(t, polls(t, name, 64, nil, func(_ *room, others *bystanders) { others.remove(1) }),
			pollCap+trip, name)
	}
}

// A waiter whose subscription is lost gets no messages until it is back.
func TestCrowd_SubscriptionLost_WaiterPollsWithinPollCap(t *testing.T) {
	for _, name := range []string{"a lock", "a permit"} {
		require.LessOrEqual(t, polls(t, name, 100, nil, func(r *room, _ *bystanders) {
			r.sealed.Store(true)
			r.mu.Lock()
			for _, c := range r.conns {
				c.Close()
			}
			r.mu.Unlock()
			time.AfterFunc(3*wait.MaxPoll, func() { r.sealed.Store(false) })
			time.Sleep(3 * pollCap)
		}), pollCap+trip, name)
	}
}

// No grant says that a program of another kind has released what it held.
func TestCrowd_HolderOfAnotherKind_WaiterPollsWithinPollCap(t *testing.T) {
	for name, answers := range map[string][]wait.Answer{
		"a lock": {{Release: wait.OnChannel}, {Release: wait.Nowhere}}, "a permit": {{Release: wait.OnChannel}},
	} {
		for _, answer := range answers {
			require.LessOrEqual(t, polls(t, name, 100, &answer, func(*room, *bystanders) {}), pollCap+trip, name)
		}
	}
}

// What no message says costs nothing if the holder's lease ends, and the waiter knows when.
func TestCrowd_LeaseEnds_WaiterAsks(t *testing.T) {
	crowd(t, 100, func(t *testing.T, r *room, _ *bystanders) {
		ends := time.Now().Add(7500 * time.Millisecond)
		x := waiters(r, &wait.Answer{Sent: ends})["a lock"]()
		time.Sleep(time.Until(ends))
		x.free(true)
		require.NoError(t, <-x.got)
		require.Less(t, time.Since(ends), 200*time.Millisecond)
		x.ended()
	})
}

// Those that may not subscribe get no messages, however many they are.
func TestCrowd_MayNotSubscribe_TakesAFreeLockWithinPollCap(t *testing.T) {
	for _, name := range []string{"a lock", "a permit"} {
		inRoom(t, func(t *testing.T, r *room) {
			r.refuse("", "NOPERM no subscriptions for you")
			others := &bystanders{r: r, done: make(chan error)}
			others.add(64)
			for range 5 {
				x := waiters(r, nil)[name]()
				time.Sleep(3*pollCap + pollCap/3)
				x.free(false)
				began := time.Now()
				require.NoError(t, <-x.got)
				require.LessOrEqual(t, time.Since(began), pollCap+trip, name)
				x.ended()
			}
			others.remove(64)
		})
	}
}

// A waiter whose requests fail is handed the lock while it pauses. In a crowd it pauses for up to a PollCap.
func TestCrowd_GrantWhileItPauses_IsUsedAtOnce(t *testing.T) {
	crowd(t, 0, func(t *testing.T, r *room, others *bystanders) {
		for range 9 {
			x := waiters(r, nil)["a lock"]()
			time.Sleep(10 * trip) // it came before the crowd
			others.add(100)
			x.down.Store(true)
			time.Sleep(9 * pollCap)
			x.free(false)
			began := time.Now()
			require.NoError(t, <-x.got)
			require.LessOrEqual(t, time.Since(began), 2*trip)
			x.ended()
			others.remove(100)
		}
	})
}
