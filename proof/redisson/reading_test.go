package interop_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch/internal/errs"
	heldlease "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/redisson"
	"github.com/redlatch/redlatch/rcounter"
)

// lease is long enough to be recognised.
const lease = 100 * time.Second

// sameLease checks that two readings of what is left, one after the other, are of the same lease.
func sameLease(t testing.TB, want, is time.Duration) {
	t.Helper()
	require.InDelta(t, want, is, float64(10*time.Second))
}

func (l *lane) left(t testing.TB, kind, name string) time.Duration {
	t.Helper()
	ms := redistest.NoError(strconv.ParseInt(l.do(t, "left", kind, name), 10, 64))(t)
	return time.Duration(ms) * time.Millisecond
}

func TestInspect_JavaHold_ReadsTheSameOnBothSides(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		for _, kind := range []string{"lock", "fair", "fenced", "spin", "read", "write"} {
			t.Run(kind, func(t *testing.T) {
				name, java := unique(t, "read"), w.lane(t)
				l := r.lock(kind, name)
				for n := 1; n <= 3; n++ {
					java.do(t, "lock", kind, name, lease.Milliseconds())
					require.Equal(t, strconv.Itoa(n), java.do(t, "count", kind, name))
					st := redistest.NoError(r.locks.Reentrant(name).Inspect(within(t)))(t)
					require.Len(t, st.Holders, 1)
					require.Equal(t, n, st.Holders[0].N)
					require.False(t, heldlease.Ours(st.Holders[0].ID))
					require.Equal(t, kind == "write", st.Holders[0].Write)
				}
				locked := redistest.NoError(l.IsLocked(within(t)))(t)
				require.True(t, locked)
				require.Equal(t, "true", java.do(t, "held", kind, name))
				state := redistest.NoError(l.Inspect(within(t)))(t)
				sameLease(t, java.left(t, kind, name), state.Lease)
				if kind != "read" {
					free := w.other(t, 30*time.Second)
					require.Equal(t, "false", free.do(t, "trynow", kind, name))
				}
				for n := 2; n >= 0; n-- {
					if kind != "read" {
						refused(t, l)
					}
					java.do(t, "unlock", kind, name)
					st := redistest.NoError(r.locks.Reentrant(name).Inspect(within(t)))(t)
					require.Equal(t, n > 0, st.Locked)
					if n > 0 {
						require.Equal(t, n, st.Holders[0].N)
					}
				}
				free(t, l)
			})
		}
	})
}

func TestInspect_GoHold_ReadsTheSameOnBothSides(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		for _, kind := range []string{"lock", "fair", "fenced", "spin", "read", "write"} {
			t.Run(kind, func(t *testing.T) {
				name, java := unique(t, "read"), w.lane(t)
				l := r.lock(kind, name).WithLease(lease)
				require.Equal(t, "false", java.do(t, "locked", kind, name))
				first := hold(t, l, within(t))
				second := hold(t, l, first.Context(within(t)))
				field := string(first.Owner())
				if kind == "write" {
					field += ":write"
				}
				require.Equal(t, "1", r.hash(t, name)[field], "a re-entry is a count in the process")
				require.Equal(t, "true", java.do(t, "locked", kind, name))
				require.Equal(t, "false", java.do(t, "held", kind, name))
				require.Equal(t, "0", java.do(t, "count", kind, name))
				state := redistest.NoError(l.Inspect(within(t)))(t)
				require.Len(t, state.Holders, 1)
				require.Equal(t, 1, state.Holders[0].N)
				sameLease(t, state.Lease, java.left(t, kind, name))
				sameLease(t, state.Lease, lease)
				if kind != "read" {
					require.Equal(t, "false", java.do(t, "trynow", kind, name))
				}
				require.Equal(t, "IllegalMonitorStateException", java.refused(t, "unlock", kind, name))
				release(t, second)
				require.Equal(t, "1", r.hash(t, name)[field])
				require.Equal(t, "true", java.do(t, "locked", kind, name))
				release(t, first)
				require.Equal(t, "false", java.do(t, "locked", kind, name))
				require.Equal(t, "true", java.do(t, "trynow", kind, name))
				java.do(t, "unlock", kind, name)
			})
		}
	})
}

// The sides take tokens in turns, and each reads the token that the other took last.
func TestFenced_BothSidesTakeTurns_TokensGrow(t *testing.T) {
	each(t, []place{newestAlone, newestCluster, olderAlone}, func(t *testing.T, w *world) {
		r := w.rig(t)
		name, java := unique(t, "fenced"), w.lane(t)
		last := int64(0)
		for n := range 6 {
			var token int64
			if n%2 == 0 {
				token = redistest.NoError(strconv.ParseInt(java.do(t, "locktoken", name), 10, 64))(t)
				java.do(t, "unlock", "fenced", name)
			} else {
				h := hold(t, r.locks.Fenced(name), within(t))
				var ok bool
				token, ok = h.Token()
				require.True(t, ok)
				release(t, h)
			}
			require.Greater(t, token, last)
			require.Equal(t, fmt.Sprint(token), java.do(t, "token", name))
			last = token
		}
	})
}

func TestCounter_BothSides_ShareOneNumber(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		name, java := unique(t, "long"), w.lane(t)
		k := r.counters.Counter(name, rcounter.CounterOptions{})
		same := agreed(t, java, "long.get", name, k.Get)
		same(0)
		require.Equal(t, "1", java.do(t, "long.incr", name))
		n := redistest.NoError(k.Add(within(t), 41))(t)
		require.EqualValues(t, 42, n)
		same(42)
		require.Equal(t, "42", java.do(t, "long.getadd", name, -50))
		same(-8)
		ok := redistest.NoError(k.CompareAndSet(within(t), -8, 1<<62))(t)
		require.True(t, ok)
		require.Equal(t, "false", java.do(t, "long.cas", name, 5, 6))
		require.Equal(t, "true", java.do(t, "long.cas", name, int64(1)<<62, 7))
		same(7)
		n = redistest.NoError(k.Decr(within(t)))(t)
		require.EqualValues(t, 6, n)
		java.do(t, "long.set", name, 9)
		same(9)
		// Java goes beyond a bound that it does not know; from there we only go back.
		bounded := r.counters.Counter(name, rcounter.CounterOptions{Max: rcounter.Bound(10)})
		java.do(t, "long.add", name, 5)
		_, err := bounded.Incr(within(t))
		require.ErrorIs(t, err, errs.ErrOutOfRange)
		same(14)

		// and none is lost
		const each = 200
		var sent []<-chan interop.Reply
		for range 4 {
			l := w.lane(t)
			for range each {
				sent = append(sent, l.send("long.incr", name))
			}
		}
		var ours errgroup.Group
		for range 4 {
			ours.Go(func() error {
				for range each {
					if _, err := k.Incr(within(t)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		for _, one := range sent {
			got(t, one)
		}
		require.NoError(t, ours.Wait())
		same(14 + 8*each)
	})
}
