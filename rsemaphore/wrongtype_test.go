package rsemaphore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// spoiled is a kind of permits, three in all, and the keys of each.
type spoiled struct {
	take  func(c *rsemaphore.Client, n int, wait time.Duration) (release func() error, err error)
	free  func(c *rsemaphore.Client) (available, out int, err error)
	sides []string // these only help; without the others nothing is held
	whole []string
}

func spoiledKinds(t *testing.T) map[string]spoiled {
	return map[string]spoiled{
		"Semaphore": {func(c *rsemaphore.Client, n int, wait time.Duration) (func() error, error) {
			p, err := c.Semaphore("s", 3).WithLabel("mine").TryAcquire(within(t), n, wait, 0)
			return func() error { return p.Release(within(t)) }, err
		}, func(c *rsemaphore.Client) (int, int, error) {
			state, err := c.Semaphore("s", 3).Inspect(within(t))
			return state.Available, len(state.Permits), err
		}, []string{"{s}:notes", "{s}:latch", "redlatch_queue:{s}"}, []string{"s", "{s}:timeout"}},
		"WeightedSemaphore": {func(c *rsemaphore.Client, n int, wait time.Duration) (func() error, error) {
			p, err := c.WeightedSemaphore("s", 3).TryAcquire(within(t), n, wait, 0)
			return func() error { return p.Release(within(t)) }, err
		}, func(c *rsemaphore.Client) (int, int, error) {
			state, err := c.WeightedSemaphore("s", 3).Inspect(within(t))
			return state.Available, len(state.Permits), err
		}, []string{"redlatch_queue:{s}:weighted"}, []string{"{s}:weighted", "{s}:weights"}},
	}
}

// spoil makes a key one of another type, at once.
func (r *rig) spoil(t testing.TB, command, key string) {
	r.must(t, "EVAL", "redis.call('DEL', KEYS[1]) redis.call(ARGV[1], KEYS[1], 'a')", "1", key, command)
}

// A key beside a semaphore becomes one of another type: before anything is acquired, while permits are out, while
// somebody waits. Whatever is refused then, no permit is lost, and none is there twice.
func TestAPermitBesideAKeyOfAnotherTypeIsNotLost(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	eachAtOnce(t, func(t *testing.T, s *redistest.Server) {
		o := rsemaphore.Options{CallTimeout: 20 * time.Second, WatchdogTimeout: 10 * time.Minute,
			PollCap: 50 * time.Millisecond}
		r, other := newRig(t, s, o), newRig(t, s, o)
		refused := 0
		for kind, k := range spoiledKinds(t) {
			for _, side := range k.sides {
				for _, command := range []string{"SET", "RPUSH"} {
					for _, out := range redistest.Sized([]int{0, 1, 3}, []int{0, 1, 3}, []int{0, 1, 2, 3}) {
						for _, waits := range []bool{false, true} {
							what := fmt.Sprint(kind, " ", command, " ", side, ", ", out, " are out, another waits: ", waits)
							r.must(t, "FLUSHALL")
							var had []func() error
							for range out {
								release, err := k.take(r.c, 1, 0)
								require.NoError(t, err, what)
								had = append(had, release)
							}
							done := make(chan error, 1)
							if waits {
								go func() {
									release, err := k.take(other.c, 3, 10*time.Second)
									if err == nil {
										err = release()
									}
									done <- err
								}()
								if out > 0 {
									redistest.Eventually(t, 20*time.Second, what+": it waits", func() bool {
										return r.number(t, "EXISTS", k.sides[len(k.sides)-1]) == 1
									})
								}
							} else {
								done <- nil
							}
							r.spoil(t, command, side)
							if release, err := k.take(r.c, 1, time.Millisecond); err == nil {
								had = append(had, release)
							} else if errors.Is(err, errs.ErrWrongType) {
								refused++
							}
							for _, release := range had {
								if err := release(); err != nil {
									require.ErrorIs(t, err, errs.ErrWrongType, what)
								}
							}
							r.must(t, "DEL", side)
							if err := <-done; err != nil {
								require.ErrorIs(t, err, errs.ErrWrongType, what)
							}
							redistest.Eventually(t, 5*time.Second, what+": all are free", func() bool {
								available, held, err := k.free(r.c)
								return err == nil && available == 3 && held == 0
							})
						}
					}
				}
			}
		}
		require.Greater(t, refused, 20, "the keys are those that the scripts use")
	})
}

// What is held is gone with its key. Who waited when the key became one of another type is refused, or has what it
// wants when that is gone.
func TestAWaiterIsServedOrRefusedWhenTheKeyChangesItsType(t *testing.T) {
	t.Parallel()
	eachAtOnce(t, func(t *testing.T, s *redistest.Server) {
		o := rsemaphore.Options{CallTimeout: 20 * time.Second, WatchdogTimeout: 10 * time.Minute,
			PollCap: 50 * time.Millisecond}
		r, other := newRig(t, s, o), newRig(t, s, o)
		for kind, k := range spoiledKinds(t) {
			for _, key := range k.whole {
				for _, command := range []string{"SET", "RPUSH"} {
					what := fmt.Sprint(kind, " ", command, " ", key)
					r.must(t, "FLUSHALL")
					release, err := k.take(r.c, 3, 0)
					require.NoError(t, err, what)
					done := make(chan error, 1)
					go func() {
						release, err := k.take(other.c, 2, 20*time.Second)
						if err == nil {
							err = release()
						}
						done <- err
					}()
					redistest.Eventually(t, 20*time.Second, what+": it waits", func() bool {
						return r.number(t, "EXISTS", k.sides[len(k.sides)-1]) == 1
					})
					r.spoil(t, command, key)
					require.Error(t, release(), what)
					r.must(t, "DEL", k.whole[0], k.whole[1]) // as somebody does who mends it
					if err := <-done; err != nil {
						require.ErrorIs(t, err, errs.ErrWrongType, what)
					}
					redistest.Eventually(t, 5*time.Second, what+": all are free", func() bool {
						available, held, err := k.free(r.c)
						return err == nil && available == 3 && held == 0
					})
				}
			}
		}
	})
}
