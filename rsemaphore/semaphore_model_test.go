package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// repeating sends every script twice, as a network may, and hands out one of the replies.
type repeating struct {
	rueidis.Client
	calls *atomic.Int64
}

func (c repeating) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if w := cmd.Commands()[0]; w != "EVALSHA" && w != "EVAL" {
		return c.Client.Do(ctx, cmd)
	}
	cmd = cmd.Pin()
	first := c.Client.Do(ctx, cmd)
	second := c.Client.Do(ctx, cmd)
	if c.calls.Add(1)%2 == 0 {
		return first
	}
	return second
}

// held is a permit in the model.
type held struct {
	p    *rsemaphore.Permit
	n    int
	end  time.Time // zero: renewed until it is released
	gone bool
}

// model is what a semaphore must be.
type model struct {
	capacity int
	permits  []*held
}

func (m *model) out(now time.Time) (n int) {
	for _, h := range m.permits {
		if !h.gone && (h.end.IsZero() || now.Before(h.end)) {
			n += h.n
		}
	}
	return n
}

// settle waits until no lease ends about now: whose end comes first, by which clock, is not what is tested.
func (m *model) settle() {
	for again := true; again; {
		again = false
		for _, h := range m.permits {
			if d := time.Until(h.end); !h.gone && !h.end.IsZero() && d > -time.Second && d < time.Second {
				time.Sleep(2 * time.Second)
				again = true
			}
		}
	}
}

func (m *model) pick(rnd *rand.Rand) *held {
	if len(m.permits) == 0 {
		return nil
	}
	return m.permits[len(m.permits)-1-rnd.IntN(min(6, len(m.permits)))]
}

func (h *held) live() bool { return !h.gone && (h.end.IsZero() || time.Now().Before(h.end)) }

func TestASemaphoreKeepsToItsModel(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	for _, mode := range []string{"once", "twice"} {
		for seed := range redistest.Sized[uint64](1, 1, 3) {
			t.Run(fmt.Sprint(mode, " ", seed), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				wrap := func(c rueidis.Client) rueidis.Client {
					if mode == "twice" {
						return repeating{c, new(atomic.Int64)}
					}
					return c
				}
				bubbleOn(t, 1, rsemaphore.Options{}, wrap, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
					againstModel(t, rigs[0].c, rnd, mode == "twice")
				})
			})
		}
	}
}

func againstModel(t *testing.T, c *rsemaphore.Client, rnd *rand.Rand, twice bool) {
	ctx := context.Background()
	m := &model{capacity: 2 + rnd.IntN(8)}
	declared := m.capacity
	sem := c.Semaphore("s", declared)
	var granted, refused, releases, notHeld, lost int
	// a second run of a release finds nothing, and says so
	ok := func(err, perhaps error) bool { return err == nil || twice && errors.Is(err, perhaps) }
	for range redistest.Sized(90, 110, 150) {
		m.settle()
		switch rnd.IntN(8) {
		case 0, 1, 2:
			n, lease := 1+rnd.IntN(min(declared, m.capacity)), time.Duration(0)
			if rnd.IntN(2) == 0 {
				lease = time.Duration(5+rnd.IntN(120)) * time.Second
			}
			free := m.capacity - m.out(time.Now())
			p, err := sem.TryAcquire(ctx, n, 0, lease)
			if n > free {
				require.ErrorIs(t, err, errs.ErrNotAcquired, "%d of %d", n, free)
				refused++
				break
			}
			require.NoError(t, err, "%d of %d", n, free)
			granted++
			h := &held{p: p, n: n}
			if lease > 0 {
				h.end = time.Now().Add(lease)
			}
			m.permits = append(m.permits, h)
		case 3, 4:
			if h := m.pick(rnd); h != nil {
				live := h.live()
				first := h.p.Err() == nil
				err := h.p.Release(ctx)
				if live && first {
					require.True(t, ok(err, errs.ErrLost), "%v", err)
					releases++
				}
				require.Equal(t, err, h.p.Release(ctx), "the first result")
				h.gone = true
			}
		case 5:
			if h := m.pick(rnd); h != nil {
				live := h.live()
				err := sem.ReleaseIDs(ctx, h.p.IDs()...)
				if live {
					require.True(t, ok(err, errs.ErrLost), "%v", err)
				} else {
					require.ErrorIs(t, err, errs.ErrLost)
					notHeld++
				}
				h.gone = true
			}
		case 6:
			if h := m.pick(rnd); h != nil {
				d := time.Duration(1+rnd.IntN(200)) * time.Second
				live := h.live() && h.p.Err() == nil
				err := h.p.Extend(ctx, d)
				if !live {
					require.Error(t, err)
					lost++
					break
				}
				require.NoError(t, err)
				if end := time.Now().Add(d); !h.end.IsZero() && end.After(h.end) {
					h.end = end
				}
			}
		default:
			if rnd.IntN(3) > 0 {
				time.Sleep(time.Duration(rnd.IntN(60_000)) * time.Millisecond)
				break
			}
			want := 1 + rnd.IntN(10)
			before, err := sem.Resize(ctx, want)
			require.NoError(t, err)
			require.Equal(t, m.capacity, before)
			m.capacity = want
		}
		m.settle()
		out := m.out(time.Now())
		require.Equal(t, [3]int{m.capacity - out, out, m.capacity}, counts(t, sem))
	}
	t.Logf("%d granted, %d refused, %d released, %d not held, %d lost", granted, refused, releases, notHeld, lost)
	require.Greater(t, granted, 10)
	require.Greater(t, refused, 5)
	require.Greater(t, releases, 3)
	for _, h := range m.permits {
		h.p.Release(ctx)
	}
	require.Equal(t, [3]int{m.capacity, 0, m.capacity}, counts(t, sem))
}
