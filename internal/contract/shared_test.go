package contract_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// sharing is how many callers of a process acquire and release free objects at the same time.
const sharing = 48

// objectOf is what a caller acquires: a lock or a semaphore of its own, but of a semaphore for all a permit.
func objectOf(caller int) string { return fmt.Sprint(object, " ", caller) }

// exclusive are primitives of which callers share calls for objects of their own, and sharers are these and a semaphore
// for all.
func exclusive() []primitive {
	return []primitive{
		locked("reentrant", of((*rlock.Client).Reentrant)),
		locked("plain", of((*rlock.Client).Plain)),
		permitted("semaphore of each", 1, func(c *rsemaphore.Client, object string) *rsemaphore.Semaphore {
			return c.Semaphore(object, 1)
		}),
	}
}

func sharers() []primitive {
	return append(exclusive(), semaphoreForAll("semaphore", 1, func(c *rsemaphore.Client) *rsemaphore.Semaphore {
		return c.Semaphore("all", 100)
	}))
}

// semaphoreForAll is one semaphore, with enough permits for all callers to have n.
func semaphoreForAll(name string, n int, of func(c *rsemaphore.Client) *rsemaphore.Semaphore) primitive {
	ofAny := func(c *rsemaphore.Client, _ string) *rsemaphore.Semaphore { return of(c) }
	p := permitted(name, n, ofAny)
	p.block = permitted(name, 100*n, ofAny).acquire
	return p
}

// eachFree runs fn with a process that is a millisecond away. It fails unless another process then gets each object
// whole, long before the end of a lease. With -short only some primitives are used.
func eachFree(t *testing.T, all []primitive, fn func(t *testing.T, s *stage, p *process)) {
	t.Helper()
	for i, x := range all {
		if testing.Short() && i%3 != 0 {
			continue
		}
		if x.block == nil {
			x.block = x.acquire
		}
		t.Run(x.name, func(t *testing.T) {
			redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
				s := &stage{primitive: x, servers: servers}
				p, other := s.open(t, leased(0)), s.open(t, leased(0))
				p.proxies[0].Delay(time.Millisecond, time.Millisecond)
				s.cycles(t, p, 1) // the scripts are loaded, and the server's time is known
				fn(t, s, p)
				p.heal()
				for caller := range sharing {
					ctx, cancel := context.WithTimeout(t.Context(), lasting)
					g, err := s.block(ctx, other, objectOf(caller), terms{})
					cancel()
					require.NoError(t, err)
					s.released(t, g)
				}
			})
		})
	}
}

// cycles has each caller acquire and release its object so many times.
func (s *stage) cycles(t *testing.T, p *process, times int) {
	t.Helper()
	var all sync.WaitGroup
	for caller := range sharing {
		all.Go(func() {
			for range times {
				g, err := s.acquire(t.Context(), p, objectOf(caller), terms{})
				if err == nil {
					err = s.release(t.Context(), g)
				}
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
}

func TestSharedCall_ManyFreeObjects_SavesRequests(t *testing.T) {
	t.Parallel()
	perCycle := func(t *testing.T, s *stage, p *process) float64 {
		const times = 5
		before := scripts(t, s.servers[0])
		s.cycles(t, p, times)
		return float64(scripts(t, s.servers[0])-before) / (sharing * times)
	}
	shared := append(sharers(), locked("non-reentrant", of((*rlock.Client).NonReentrant)),
		semaphoreForAll("semaphore of Redisson", 1, func(c *rsemaphore.Client) *rsemaphore.Semaphore {
			return c.Semaphore("java", 100).Shared()
		}))
	eachFree(t, shared, func(t *testing.T, s *stage, p *process) { require.Less(t, perCycle(t, s, p), 1.0) })
	alone := []primitive{locked("fenced", of((*rlock.Client).Fenced)),
		semaphoreForAll("two permits", 2, func(c *rsemaphore.Client) *rsemaphore.Semaphore {
			return c.Semaphore("two", 200)
		})}
	eachFree(t, alone, func(t *testing.T, s *stage, p *process) { require.GreaterOrEqual(t, perCycle(t, s, p), 2.0) })
}

// isShared reports whether several callers share the call: the keys are followed by the command that publishes.
func isShared(words []string) bool {
	if len(words) < 4 || words[0] != "EVALSHA" {
		return false
	}
	n, err := strconv.Atoi(words[2])
	return err == nil && len(words) > 3+n && words[3+n] == "PUBLISH"
}

// Every caller gets its object in the end, no release reports a loss, and nothing stays taken.
func TestSharedCall_Lost_CountsOnce(t *testing.T) {
	t.Parallel()
	fates := map[string]redistest.Fate{"reply": redistest.LoseReply, "request": redistest.LoseRequest}
	for name, fate := range fates {
		t.Run(name, func(t *testing.T) {
			eachFree(t, sharers(), func(t *testing.T, s *stage, p *process) {
				var seen, lost atomic.Int32
				p.proxies[0].Trap(&redistest.Trap{Every: true, Fate: fate, Match: func(words []string) bool {
					return isShared(words) && seen.Add(1)%8 == 0 && lost.Add(1) <= 10
				}})
				s.cycles(t, p, 10)
				require.Positive(t, lost.Load(), "shared calls were lost")
			})
		})
	}
}

// Callers leave before their shared calls are sent, and while they are under way. A grant that comes afterwards is
// given back.
func TestSharedCall_CallersLeave_GivesBackTheirGrants(t *testing.T) {
	t.Parallel()
	eachFree(t, sharers(), func(t *testing.T, s *stage, p *process) {
		p.proxies[0].Delay(50*time.Millisecond, 50*time.Millisecond)
		var all sync.WaitGroup
		var left atomic.Int32
		for caller := range sharing {
			all.Go(func() {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if caller%2 == 0 {
					time.AfterFunc(time.Duration(caller)*2*time.Millisecond, leave)
				}
				g, err := s.acquire(ctx, p, objectOf(caller), terms{})
				if err != nil {
					assert.ErrorIs(t, err, context.Canceled)
					left.Add(1)
					return
				}
				assert.NoError(t, s.release(t.Context(), g))
			})
		}
		all.Wait()
		require.Positive(t, left.Load())
	})
}

// Callers of two processes take objects that no other caller wants, and between these objects that all want. A caller
// that is refused in a shared call waits, and is served.
func TestSharedCall_AmongContendedObjects_KeepsExclusion(t *testing.T) {
	t.Parallel()
	eachFree(t, exclusive(), func(t *testing.T, s *stage, p *process) {
		const hot, times = 8, 6
		var inside [hot]atomic.Int32
		var all sync.WaitGroup
		for i, p := range []*process{p, s.away(t)} {
			for caller := range sharing / 2 {
				all.Go(func() {
					for n := range times {
						name, wanted := fmt.Sprint("own ", i, " ", caller), rand.N(hot)
						if n%3 == 0 {
							name = fmt.Sprint("hot ", wanted)
						}
						g, err := s.acquire(t.Context(), p, name, terms{})
						if !assert.NoError(t, err) {
							return
						}
						if n%3 == 0 {
							assert.EqualValues(t, 1, inside[wanted].Add(1), "holders of %s", name)
							time.Sleep(time.Millisecond)
							inside[wanted].Add(-1)
						}
						assert.NoError(t, s.release(t.Context(), g))
					}
				})
			}
		}
		all.Wait()
	})
}
