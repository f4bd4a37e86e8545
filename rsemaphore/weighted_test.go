package rsemaphore_test

import (
	"context"
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

var weightedKeys = []string{"{s}:weighted", "{s}:weights", "redlatch_queue:{s}:weighted"}

// weigh acquires without waiting.
func weigh(t *testing.T, s *rsemaphore.Semaphore, n int) *rsemaphore.Permit {
	t.Helper()
	p, err := s.TryAcquire(within(t), n, 0, 0)
	require.NoError(t, err)
	return p
}

func TestAWeightIsOneRecordHoweverMuchItIs(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		const all = 1<<53 - 1
		s := r.c.WeightedSemaphore("s", all)
		a := weigh(t, s.WithLabel("half and one"), all/2+1)
		b := weigh(t, s, all/2)
		require.Zero(t, must1[int](t)(s.Available(within(t))))
		require.EqualValues(t, 2, r.number(t, "ZCARD", weightedKeys[1]))
		require.EqualValues(t, 4, r.number(t, "HLEN", weightedKeys[0]), "capacity, used and one of each")
		_, err := s.TryAcquire(within(t), 1, 0, 0)
		var busy *rsemaphore.NotAcquiredError
		require.ErrorAs(t, err, &busy)
		require.Positive(t, busy.Lease, "until the first lease ends, which frees enough")

		state, err := s.Inspect(within(t))
		require.NoError(t, err)
		require.EqualValues(t, all, state.Capacity)
		require.Zero(t, state.Available)
		require.Len(t, state.Permits, 2)
		for _, h := range state.Permits {
			require.True(t, strings.HasPrefix(r.c.ID(), h.Client) && h.Client != "")
			require.Positive(t, h.Lease)
			require.Equal(t, map[bool]int{true: all/2 + 1, false: all / 2}[h.Label != ""], h.N)
		}
		require.Equal(t, []string{state.Permits[0].ID, state.Permits[1].ID}, append(a.IDs(), b.IDs()...))
		require.NoError(t, a.Release(within(t)))
		require.EqualValues(t, all/2+1, must1[int](t)(s.Available(within(t))))
		require.NoError(t, b.Release(within(t)))
		require.EqualValues(t, all, must1[int](t)(s.Available(within(t))))
		require.ErrorIs(t, a.Err(), errs.ErrReleased)
		require.NoError(t, a.Release(within(t)), "the first call's result")
	})
}

func TestAPartOfAWeightIsReleasedAndTheRestIsKept(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		s := r.c.WeightedSemaphore("s", 100)
		p := weigh(t, s, 90)
		require.NoError(t, p.ReleasePart(within(t), 40))
		require.EqualValues(t, 50, p.N())
		require.EqualValues(t, 50, must1[int](t)(s.Available(within(t))))
		for _, n := range []int{50, 51, 0, -1, 1 << 60} {
			err := p.ReleasePart(within(t), n)
			require.ErrorIs(t, err, errs.ErrInvalidOption)
			require.ErrorContains(t, err, `n is `)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, p.ReleasePart(ended, 1), "it has a second")
		require.NoError(t, p.Extend(within(t), time.Hour), "the rest has its lease")
		require.NoError(t, p.Release(within(t)))
		require.EqualValues(t, 100, must1[int](t)(s.Available(within(t))))
		require.ErrorIs(t, p.ReleasePart(within(t), 1), errs.ErrReleased)

		q := weigh(t, s, 10)
		r.must(t, "DEL", weightedKeys[0], weightedKeys[1])
		require.ErrorIs(t, q.ReleasePart(within(t), 1), errs.ErrLost)
		require.ErrorIs(t, q.Release(within(t)), errs.ErrLost)
	})
}

// What is kept is sent and not what is given back, so a repeated request gives nothing back twice.
func TestARepeatedReleaseOfAPartGivesBackOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv)
	r, direct := newRig(t, proxy.Server(), patient), newRig(t, srv, patient)
	s, beside := r.c.WeightedSemaphore("s", 100), direct.c.WeightedSemaphore("s", 100)
	p := weigh(t, s, 90)
	require.NoError(t, p.ReleasePart(within(t), 10)) // the script is loaded
	for i, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseRequest} {
		trap := proxy.Trap(&redistest.Trap{Match: redistest.With(weightedKeys[0]), Fate: fate})
		require.NoError(t, p.ReleasePart(within(t), 20))
		trap.Wait(t)
		want := 20 + 20*(i+1)
		require.Equal(t, 100-want, p.N())
		require.Equal(t, want, must1[int](t)(beside.Available(within(t))))
	}
	require.NoError(t, p.Release(within(t)))
	require.EqualValues(t, 100, must1[int](t)(beside.Available(within(t))))
}

func TestReleasingAPartServesWhoWaits(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r, other := newRig(t, srv, patient), newRig(t, srv, patient)
		p := weigh(t, r.c.WeightedSemaphore("s", 100), 100)
		got := make(chan *rsemaphore.Permit, 1)
		go func() {
			q, err := other.c.WeightedSemaphore("s", 100).Acquire(within(t), 60)
			if err != nil {
				t.Error(err)
			}
			got <- q
		}()
		redistest.Eventually(t, 30*time.Second, "it waits", func() bool { return r.number(t, "ZCARD", weightedKeys[2]) > 0 })
		require.NoError(t, p.ReleasePart(within(t), 59))
		require.EqualValues(t, 59, must1[int](t)(r.c.WeightedSemaphore("s", 100).Available(within(t))))
		require.NoError(t, p.ReleasePart(within(t), 1))
		q := <-got
		require.NotNil(t, q)
		require.EqualValues(t, 60, q.N())
		require.NoError(t, q.Release(within(t)))
		require.NoError(t, p.Release(within(t)))
		require.EqualValues(t, 100, must1[int](t)(r.c.WeightedSemaphore("s", 100).Available(within(t))))
	})
}

func TestWeightsOfTheDeadComeBackAndWhoIsRenewedStays(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		s := r.c.WeightedSemaphore("s", 10)
		kept, gone := weigh(t, s, 4), weigh(t, s, 6)
		base := rawBase(t, gone.IDs()[0])
		r.must(t, "ZADD", weightedKeys[1], "1000", base) // its lease is over
		require.EqualValues(t, 6, must1[int](t)(s.Available(within(t))), "a look counts it as given back")
		p := weigh(t, s, 6)
		require.ErrorIs(t, gone.Extend(within(t), time.Minute), errs.ErrLost)
		require.ErrorIs(t, gone.Release(within(t)), errs.ErrLost)
		require.Zero(t, must1[int](t)(s.Available(within(t))), "a release after the end gives nothing back")
		require.NoError(t, kept.Extend(within(t), time.Minute))
		require.NoError(t, p.Release(within(t)))
		require.NoError(t, kept.Release(within(t)))
	})
}

func TestARenewedWeightOutlivesItsLease(t *testing.T) {
	t.Parallel()
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		r := newRig(t, servers[0], rsemaphore.Options{WatchdogTimeout: 5 * time.Second})
		s := r.c.WeightedSemaphore("s", 10)
		p := weigh(t, s, 4)
		first := must1[rsemaphore.SemaphoreState](t)(s.Inspect(within(t)))
		until := p.Until()
		redistest.Eventually(t, 30*time.Second, "it is renewed", func() bool {
			return p.Until().After(until.Add(time.Second))
		})
		again := must1[rsemaphore.SemaphoreState](t)(s.Inspect(within(t)))
		require.Equal(t, first.Permits[0].ID, again.Permits[0].ID)
		require.EqualValues(t, 4, again.Permits[0].N)
		require.Greater(t, r.pttl(t, weightedKeys[0]), time.Duration(0))
		require.NoError(t, p.Release(within(t)))
	})
}

// What is out follows from both keys, so where one is deleted all is free, and nobody is told that it holds what it
// does not.
func TestAWeightedSemaphoreOfWhichAKeyIsDeletedHasAllFree(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		s := r.c.WeightedSemaphore("s", 10)
		for _, key := range weightedKeys[:2] {
			p := weigh(t, s, 7)
			r.must(t, "DEL", key)
			q := weigh(t, s, 10)
			require.ErrorIs(t, p.Release(within(t)), errs.ErrLost, key)
			require.Zero(t, must1[int](t)(s.Available(within(t))), key)
			require.NoError(t, q.Release(within(t)))
			require.EqualValues(t, 10, must1[int](t)(s.Available(within(t))), key)
		}
	})
}

func TestAWeightedSemaphoresCapacityIsTheSameForAllOrTheServers(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		r := newRig(t, srv, patient)
		s := r.c.WeightedSemaphore("s", 10)
		require.EqualValues(t, 10, must1[int](t)(s.Available(within(t))), "not in use")
		p := weigh(t, s, 8)
		_, err := r.c.WeightedSemaphore("s", 11).TryAcquire(within(t), 1, 0, 0)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
		require.ErrorContains(t, err, `"s" has 10, not 11`)
		_, err = s.Acquire(within(t), 11)
		require.ErrorIs(t, err, errs.ErrInvalidOption)

		require.EqualValues(t, 10, must1[int](t)(s.Resize(within(t), 5)))
		require.EqualValues(t, -3, must1[int](t)(s.Available(within(t))), "what is held stays held")
		_, err = s.Acquire(within(t), 6)
		require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
		require.NoError(t, p.Release(within(t)))
		q, err := r.c.WeightedSemaphore("s", 99).TryAcquire(within(t), 5, 0, 0)
		require.NoError(t, err, "the server's counts after a resize")
		require.NoError(t, q.Release(within(t)))
		require.Greater(t, r.pttl(t, weightedKeys[0]), 6*24*time.Hour)

		for text, err := range map[string]error{
			"capacity is 0":                errOf(r.c.WeightedSemaphore("s", 0).Acquire(within(t), 1)),
			"capacity is 9007199254740992": errOf(r.c.WeightedSemaphore("s", 1<<53).Available(within(t))),
			"capacity is -1":               errOf(s.Resize(within(t), -1)),
			"n is 0":                       errOf(s.Acquire(within(t), 0)),
			"n is 9007199254740992":        errOf(s.TryAcquire(within(t), 1<<53, 0, 0)),
			"waitTime is -1s":              errOf(s.TryAcquire(within(t), 1, -time.Second, 0)),
			"leaseTime is 1ms":             errOf(s.TryAcquire(within(t), 1, 0, time.Millisecond)),
			"label is":                     errOf(s.WithLabel(strings.Repeat("l", 257)).Inspect(within(t))),
		} {
			require.ErrorIs(t, err, errs.ErrInvalidOption, text)
			require.ErrorContains(t, err, text)
			require.True(t, strings.HasPrefix(err.Error(), "rsemaphore: "), err)
		}
	})
}

func TestAResizeOfWeightsServesWhoWaits(t *testing.T) {
	t.Parallel()
	r, other := newRig(t, redistest.Start(t), patient), (*rig)(nil)
	other = newRig(t, r.server, patient)
	s := r.c.WeightedSemaphore("s", 10)
	p := weigh(t, s, 10)
	got := make(chan error, 1)
	go func() {
		got <- other.c.WeightedSemaphore("s", 10).Do(within(t), 5, func(context.Context) error { return nil })
	}()
	redistest.Eventually(t, 30*time.Second, "it waits", func() bool { return r.number(t, "ZCARD", weightedKeys[2]) > 0 })
	require.EqualValues(t, 10, must1[int](t)(s.Resize(within(t), 15)))
	require.NoError(t, <-got)
	require.NoError(t, p.Release(within(t)))
}

// A large request is first once, and then at most four times what it asks for goes before it.
func TestALargeWeightIsNotStarvedBySmallOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), patient)
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	var work sync.WaitGroup
	for range 4 {
		small := newRig(t, r.server, patient).c.WeightedSemaphore("s", 1<<40)
		for range 2 {
			work.Go(func() {
				for ctx.Err() == nil {
					err := small.Do(ctx, 1<<38, func(context.Context) error { time.Sleep(time.Millisecond); return nil })
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	for range 3 {
		require.NoError(t, r.c.WeightedSemaphore("s", 1<<40).Do(within(t), 1<<40, func(context.Context) error { return nil }))
	}
	stop()
	work.Wait()
	redistest.Eventually(t, 30*time.Second, "all is given back", func() bool {
		n, err := r.c.WeightedSemaphore("s", 1<<40).Available(within(t))
		return err == nil && n == 1<<40
	})
}

func TestALostReplyOfAnAcquisitionOfAWeightTakesItOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv)
	r, direct := newRig(t, proxy.Server(), patient), newRig(t, srv, patient)
	s, beside := r.c.WeightedSemaphore("s", 100), direct.c.WeightedSemaphore("s", 100)
	require.NoError(t, weigh(t, s, 1).Release(within(t))) // the scripts are loaded
	for _, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseRequest} {
		trap := proxy.Trap(&redistest.Trap{Match: redistest.With(weightedKeys[0]), Fate: fate})
		p, err := s.Acquire(within(t), 60)
		require.NoError(t, err)
		trap.Wait(t)
		require.EqualValues(t, 40, must1[int](t)(beside.Available(within(t))))
		require.NoError(t, p.Release(within(t)))
		require.EqualValues(t, 100, must1[int](t)(beside.Available(within(t))))
	}
	// A semaphore of its own: what is sent later, because of the replies lost so far, is not to be caught here.
	s, beside = r.c.WeightedSemaphore("other", 100), direct.c.WeightedSemaphore("other", 100)
	proxy.Trap(&redistest.Trap{Match: func(words []string) bool {
		return strings.Contains(strings.Join(words, " "), "{other}")
	}, Fate: redistest.LoseReply})
	_, err := s.TryAcquire(within(t), 60, 0, 0)
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	redistest.Eventually(t, 30*time.Second, "what it took is given back", func() bool {
		n, err := beside.Available(within(t))
		return err == nil && n == 100
	})
}

// rawBase is how the server knows a weighted permit of that id.
func rawBase(t *testing.T, id string) string {
	t.Helper()
	b, err := hex.DecodeString(id)
	require.NoError(t, err)
	return string(b[:13])
}
