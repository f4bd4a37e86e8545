package contract_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
)

// onTerms are the ways in which callers ask for the object.
var onTerms = []struct {
	name string // ends a promise
	on   func(caller int) terms
	set  func(o *redlatch.Options)
}{
	{"bare", bare, nil},
	{"with a lease", func(int) terms { return terms{lease: lasting} }, nil},
	{"with one label", func(int) terms { return terms{label: "label"} }, nil},
	{differing, func(caller int) terms { return terms{label: fmt.Sprint("label-", caller)} }, nil},
	{"with MaxHold", bare, func(o *redlatch.Options) {
		o.Locks = func(o *rlock.Options) { o.MaxHold = lasting }
		o.Elections = func(o *election.Options) { o.MaxHold = lasting }
		o.Semaphores = func(o *rsemaphore.Options) { o.MaxHold = lasting }
	}},
	{"as a member of a Multi", func(int) terms { return terms{member: true} }, nil},
}

func bare(int) terms { return terms{} }

// termsScenarios are promises that hold on all terms. In each of them callers of three processes take the object again
// and again.
var termsScenarios = func() (all []scenario) {
	for _, x := range onTerms {
		crowds := func(t *testing.T, s *stage, callers int, wait time.Duration, others int) []*crowd {
			t.Helper()
			o := redlatch.Options{}
			if x.set != nil {
				x.set(&o)
			}
			list := []*crowd{{process: s.open(t, o), callers: callers, on: x.on, wait: wait}}
			for range 2 {
				list = append(list, &crowd{process: s.open(t, redlatch.Options{}), callers: others, on: bare, blocks: true})
			}
			return list
		}
		all = append(all, judged(shareOf(x.name), func(t *testing.T, s *stage) string {
			if !s.exactly(x.name) {
				return s.shares(crowds(t, s, 6, 0, 6)...).atLeast(1, 2)
			}
			return s.sharesFor(4, crowds(t, s, 6, 0, 6)...).atLeast(85, 100)
		}), judged(impatientShareOf(x.name), func(t *testing.T, s *stage) string {
			return s.shares(crowds(t, s, 8, 30*time.Millisecond, 12)...).atLeast(1, 4)
		}), judged(grantsOf(x.name), func(t *testing.T, s *stage) string {
			if !s.exactly(x.name) {
				return s.shares(crowds(t, s, 5, 5*time.Millisecond, 1)...).atLeast(1, 20)
			}
			return s.shares(crowds(t, s, 5, 5*time.Millisecond, 1)...).atLeast(1, 1)
		}))
		if x.name == differing {
			all = append(all, judged(farShare, func(t *testing.T, s *stage) string {
				all := crowds(t, s, 6, 0, 6)
				for _, c := range all {
					c.process.proxies[0].Delay(time.Millisecond, time.Millisecond)
				}
				return s.sharesFor(2, all...).atLeast(1, 2)
			}))
		}
		all = append(all, scenario{idleOf(x.name), simulated, func(t *testing.T, s *stage) {
			var takes, bareTakes []redistest.Take
			var calls atomic.Int64
			reentrant := &stage{primitives()[0], s.servers}
			for _, c := range crowds(t, s, 0, 0, 0) {
				c.process.proxies[0].Delay(time.Millisecond, time.Millisecond)
				takes = append(takes, func(ctx context.Context, wait time.Duration) (func(), error) {
					return s.taking(c.process, x.on(int(calls.Add(1)%6)))(ctx, wait)
				})
				bareTakes = append(bareTakes, reentrant.taking(c.process, terms{}))
			}
			redistest.NotIdle(t, pollCap/2, "", takes...) // from now on the processes are subscribed
			if x.on(0).member {                           // each call takes more round trips than it waits for
				return
			}
			taken, longest := redistest.TakeTogether(t, 0, "", takes...)
			time.Sleep(time.Second)
			bareTaken, bareLongest := redistest.TakeTogether(t, 0, "", bareTakes...)
			// Up to 15 times fewer were seen (Plain with labels that differ, and Fair, the first of whose queue is the caller
			// that leaves next). Where the next caller's request follows a caller that has left, it was 100 times.
			require.GreaterOrEqual(t, 30*taken, bareTaken)
			require.LessOrEqual(t, longest, 25*max(bareLongest, 4*time.Millisecond))
		}})
	}
	return all
}()

func shareOf(terms string) string { return "a process gets its share, " + terms }

const (
	differing = "with labels that differ" // each turn of a process costs a call
	farShare  = "at a round trip of 2 ms a process gets half of its share at least, " + differing
)

func idleOf(terms string) string { return "it is hardly idle while all callers give up, " + terms }

// exactly reports whether the callers of a process follow each other on the terms without a call, so that its share is
// that of a process with bare callers.
func (s *stage) exactly(terms string) bool {
	return slices.Contains([]string{"reentrant", "non-reentrant", "write"}, s.name) && terms != differing
}

func impatientShareOf(terms string) string {
	return "a process whose callers wait for less than the line is long gets its share, " + terms
}

func grantsOf(terms string) string { return "callers that give up within 5 ms get it, too, " + terms }

// ofTerms notes in which of the promises on terms the primitive differs, and which it does not keep yet.
func (p *primitive) ofTerms() {
	for i, x := range onTerms {
		share, impatient, grants, idle := shareOf(x.name), impatientShareOf(x.name), grantsOf(x.name), idleOf(x.name)
		differs := func(why string, promises ...string) {
			for _, promise := range promises {
				p.differs[promise] = why
			}
		}
		switch p.name {
		case "spin", "quorum":
			differs(compete, share, farShare, impatient, grants)
		case "plain":
			differs(compete, grants)
		case "multi":
			differs("A Multi is as fair as its members.", share, farShare, impatient, grants)
		case "fair", "semaphore", "weighted", "tenant", "tenants":
			differs("Its line is of callers, not of processes: who waits for less than it is long is not served.", impatient)
		case "election":
			if x.set == nil && i > 0 {
				differs("A candidate has a value, and no other terms.", share, farShare, impatient, grants)
			}
		case "once":
			if x.set == nil && i > 0 {
				differs("A run has no lease and no label of its own.", share, farShare, impatient, grants, idle)
			}
		}
		if slices.Contains([]string{"multi", "quorum", "semaphore", "weighted", "tenant", "tenants", "election"}, p.name) {
			differs("It is not one lock, and Reentrant is no measure for it.", idle)
		} else if x.name != "bare" && slices.Contains([]string{"fair", "spin"}, p.name) {
			differs("Each of its callers asks for itself on any terms.", idle)
		}
		if x.on(0).member && slices.Contains([]string{"semaphore", "weighted", "tenant", "tenants"}, p.name) {
			differs("A Multi has locks as members.", share, impatient, grants)
		}
	}
}

// judged is a scenario that returns what was not kept, so that it can be known of a primitive.
func judged(promise string, run func(t *testing.T, s *stage) (broken string)) scenario {
	return scenario{promise, simulated, func(t *testing.T, s *stage) {
		if !slices.Contains([]string{shareOf("bare"), shareOf("with a lease"), grantsOf("with a lease")}, promise) {
			redistest.SkipShort(t)
		}
		broken := run(t, s)
		if why, known := s.known[promise]; known {
			require.NotEmpty(t, broken, "it is kept now, and no longer known: %s", why)
			return
		}
		require.Empty(t, broken)
	}}
}

// crowd is the callers of one process, who take the object again and again.
type crowd struct {
	process *process
	callers int
	on      func(caller int) terms
	wait    time.Duration // for which a caller waits; 0: until it has the object
	blocks  bool          // they take it so that others wait
}

// shares is how often each crowd has had the object.
type shares []int64

// shares has the crowds take the object, for 2 ms each time.
func (s *stage) shares(crowds ...*crowd) shares { return s.sharesFor(1, crowds...) }

// sharesFor is shares for so many times as long.
func (s *stage) sharesFor(times time.Duration, crowds ...*crowd) shares {
	until := time.Now().Add(redistest.Sized(times*120*time.Millisecond, times*120*time.Millisecond, 5*time.Second))
	counts := make([]atomic.Int64, len(crowds))
	var all sync.WaitGroup
	for i, c := range crowds {
		for caller := range c.callers {
			all.Go(func() {
				of := *s
				if c.blocks {
					of.acquire = s.block
				}
				take := of.taking(c.process, c.on(caller))
				for time.Now().Before(until) {
					if release, err := take(context.Background(), c.wait); err == nil {
						counts[i].Add(1)
						time.Sleep(2 * time.Millisecond)
						release()
					}
				}
			})
		}
	}
	all.Wait()
	list := make(shares, len(crowds))
	for i := range counts {
		list[i] = counts[i].Load()
	}
	return list
}

// atLeast is "", unless the first has less than that part of what the others have on average.
func (list shares) atLeast(part, of int64) (broken string) {
	var others int64
	for _, n := range list[1:] {
		others += n
	}
	if list[0]*of*int64(len(list)-1) < others*part {
		broken = fmt.Sprintf("%v", list)
	}
	return broken
}
