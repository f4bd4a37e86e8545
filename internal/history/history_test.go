package history_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/history"
)

var model = history.LockModel{Slack: 2 * time.Millisecond, LateAcquire: 10 * time.Millisecond,
	Late: 10 * time.Millisecond, Timeout: 20 * time.Second}

const ms = time.Millisecond

func logOf(ops ...history.Op) *history.Log {
	l := history.New()
	for _, op := range ops {
		op.Lock = "l"
		l.Add(op)
	}
	return l
}

func acquire(owner int, out history.Outcome, call, ret, lease time.Duration) history.Op {
	return history.Op{Client: owner, Owner: owner, Kind: history.Acquire, Outcome: out, Call: call, Return: ret,
		Lease: lease}
}

func release(owner int, out history.Outcome, call, ret time.Duration) history.Op {
	return history.Op{Client: owner, Owner: owner, Kind: history.Release, Outcome: out, Call: call, Return: ret}
}

func renewed(op history.Op) history.Op { op.Renewed = true; return op }

func cancelled(op history.Op) history.Op { op.Late = 40 * ms; return op }

func TestSoundHistoriesAreAccepted(t *testing.T) {
	const ok, refused, unknown = history.OK, history.Refused, history.Unknown
	for name, l := range map[string]*history.Log{
		"nothing": logOf(),
		"one after other": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(1, ok, 2*ms, 3*ms),
			acquire(2, ok, 4*ms, 5*ms, 100*ms), release(2, ok, 6*ms, 7*ms)),
		"refused while held": logOf(acquire(1, ok, 0, 1*ms, 100*ms), acquire(2, refused, 2*ms, 3*ms, 100*ms),
			release(1, ok, 4*ms, 5*ms)),
		"granted while the release is under way": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(1, ok, 2*ms, 9*ms),
			acquire(2, ok, 3*ms, 4*ms, 100*ms),
			release(2, ok, 5*ms, 6*ms)),
		"unknown acquire that took it": logOf(acquire(1, unknown, 0, 5*ms, 100*ms),
			acquire(2, refused, 50*ms, 51*ms, 100*ms), acquire(3, ok, 120*ms, 121*ms, 100*ms)),
		"unknown acquire that did not": logOf(acquire(1, unknown, 0, 5*ms, 100*ms), acquire(2, ok, 6*ms, 7*ms, 100*ms)),
		"unknown acquire that took it later": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			cancelled(acquire(2, unknown, 2*ms, 3*ms, 100*ms)), release(1, ok, 30*ms, 31*ms),
			acquire(3, refused, 32*ms, 33*ms, 100*ms)),
		"unknown acquire cleared away": logOf(acquire(1, unknown, 0, 5*ms, 100*ms),
			acquire(2, refused, 6*ms, 7*ms, 100*ms), acquire(3, ok, 8*ms, 9*ms, 100*ms)),
		"unknown release that ran late": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(1, unknown, 2*ms, 5*ms),
			acquire(2, refused, 8*ms, 9*ms, 100*ms), acquire(3, ok, 10*ms, 11*ms, 100*ms)),
		"refused just before the lease is over": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			acquire(2, refused, 101*ms, 102*ms, 100*ms)),
		"a renewed hold outlives its lease": logOf(renewed(acquire(1, ok, 0, 1*ms, 100*ms)),
			acquire(2, refused, 900*ms, 901*ms, 100*ms), release(1, ok, 950*ms, 951*ms), acquire(3, ok, 960*ms, 961*ms, 100*ms)),
	} {
		require.NoError(t, model.Check(l), name)
	}
}

func TestPlantedFaultsAreFound(t *testing.T) {
	const ok, refused, unknown = history.OK, history.Refused, history.Unknown
	for name, l := range map[string]*history.Log{
		"double grant": logOf(acquire(1, ok, 0, 1*ms, 100*ms), acquire(2, ok, 2*ms, 3*ms, 100*ms),
			release(1, ok, 4*ms, 5*ms), release(2, ok, 6*ms, 7*ms)),
		"double grant of overlapping calls": logOf(acquire(1, ok, 0, 5*ms, 100*ms), acquire(2, ok, 1*ms, 4*ms, 100*ms),
			release(1, ok, 6*ms, 7*ms), release(2, ok, 6*ms, 7*ms)),
		"granted before the release began": logOf(acquire(1, ok, 0, 1*ms, 100*ms), acquire(2, ok, 2*ms, 3*ms, 100*ms),
			release(1, ok, 4*ms, 5*ms)),
		"released by somebody who holds nothing": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(2, ok, 2*ms, 3*ms)),
		"granted under a renewed hold": logOf(renewed(acquire(1, ok, 0, 1*ms, 100*ms)),
			acquire(2, ok, 500*ms, 501*ms, 100*ms), release(1, ok, 900*ms, 901*ms)),
		"refused when nobody held it": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(1, ok, 2*ms, 3*ms),
			acquire(2, refused, 4*ms, 5*ms, 100*ms)),
		"refused long after a cancelled acquire may have been granted": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			cancelled(acquire(2, unknown, 2*ms, 3*ms, 100*ms)),
			release(1, ok, 30*ms, 31*ms), acquire(3, refused, 170*ms, 171*ms, 100*ms)),
		"refused long after the lease": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			acquire(2, refused, 150*ms, 151*ms, 100*ms)),
		"left behind for longer than its lease": logOf(acquire(1, unknown, 0, 5*ms, 100*ms),
			acquire(2, refused, 150*ms, 151*ms, 100*ms)),
		"granted, released, and refused as held": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(1, refused, 2*ms, 3*ms)),
	} {
		require.ErrorContains(t, model.Check(l), "not the history of a lock", name)
	}
}

func TestARefusalMayBeDueToAWaiterThatHasGivenUp(t *testing.T) {
	for _, late := range []time.Duration{0, 50 * ms} {
		for at, possible := range map[time.Duration]bool{60 * ms: true, 140 * ms: true, 160 * ms: false} {
			l := logOf(acquire(1, history.OK, 0, ms, 100*ms), acquire(2, history.Unknown, 2*ms, 5*ms, 100*ms),
				release(1, history.OK, 20*ms, 21*ms),
				acquire(3, history.Refused, at, at+ms, 100*ms))
			m := model
			m.LateGrant = late
			require.Equal(t, possible && late > 0, m.Check(l) == nil, "%v %v", late, at)
		}
	}
}

func TestAGrantBeforeALostHoldCeasedToBeTrustedIsFound(t *testing.T) {
	for _, trusted := range []time.Duration{90 * ms, 110 * ms} {
		l := logOf(renewed(acquire(1, history.OK, 0, ms, 100*ms)), acquire(2, history.OK, 99*ms, 100*ms, 100*ms))
		l.Lost(1, time.Now().Add(trusted-l.At(time.Now())))
		require.Equal(t, trusted > 100*ms, model.Check(l) != nil, trusted)
	}
}

// fake is a lock with leases in memory, which can be made to misbehave.
type fake struct {
	mu       sync.Mutex
	owner    int
	until    time.Time
	grants   int
	lease    time.Duration
	anybody  bool // releases without looking at the owner
	foreign  int  // of those, how many were somebody else's
	doubleAt int  // the n-th refusal is a grant
	refusals int
}

func (f *fake) acquire(owner int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owner != 0 && time.Now().Before(f.until) {
		if f.refusals++; f.refusals != f.doubleAt {
			return false
		}
	}
	f.owner, f.until = owner, time.Now().Add(f.lease)
	f.grants++
	return true
}

func (f *fake) release(owner int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owner != owner && !f.anybody || f.owner == 0 || !time.Now().Before(f.until) {
		return false
	}
	if f.owner != owner {
		f.foreign++
	}
	f.owner = 0
	return true
}

// record has clients use locks n times, of which some are never answered and some then happen late.
func record(n, clients, locks int, faulty map[history.Kind]float64, plant func(*fake)) *history.Log {
	l := history.New()
	fakes := make([]*fake, locks)
	for i := range fakes {
		fakes[i] = &fake{lease: 200 * ms}
	}
	plant(fakes[0])
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var done atomic.Int64
	var wg, late sync.WaitGroup
	for c := range clients {
		r := rand.New(rand.NewPCG(uint64(c), 7))
		wg.Go(func() {
			for ctx.Err() == nil {
				i := r.IntN(locks)
				f, name, owner := fakes[i], fmt.Sprint("l", i), l.Owner()
				ask := func(kind history.Kind, do func() bool) func() history.Outcome {
					fate, pause, faulty := r.Float64(), rand.N(5*ms), faulty[kind]
					return func() history.Outcome {
						switch {
						case fate < faulty/3: // runs after its caller gave up
							late.Go(func() { time.Sleep(pause); do() })
							return history.Unknown
						case fate < faulty*2/3: // runs, its reply is lost, and it is sent again
							do()
							late.Go(func() { time.Sleep(pause); do() })
							return history.Unknown
						case fate < faulty: // is lost
							return history.Unknown
						case do():
							return history.OK
						}
						return history.Refused
					}
				}
				got := l.Do(history.Op{Client: c, Lock: name, Owner: owner, Kind: history.Acquire, Lease: f.lease},
					ask(history.Acquire, func() bool { return f.acquire(owner) }))
				if got == history.OK {
					if r.IntN(2) == 0 {
						time.Sleep(rand.N(500 * time.Microsecond))
					}
					began := time.Now()
					if l.Do(history.Op{Client: c, Lock: name, Owner: owner, Kind: history.Release}, ask(history.Release, func() bool {
						return f.release(owner)
					})) == history.Refused {
						l.Lost(owner, began)
					}
				}
				if got == history.Refused {
					time.Sleep(rand.N(200 * time.Microsecond))
				}
				if done.Add(1) >= int64(n) {
					cancel()
				}
			}
		})
	}
	wg.Wait()
	late.Wait()
	return l
}

func TestLongSoundHistoriesAreAcceptedQuickly(t *testing.T) {
	for _, faulty := range []map[history.Kind]float64{nil, {history.Acquire: 0.02, history.Release: 0.02}} {
		began := time.Now()
		l := record(2000, 8, 4, faulty, func(*fake) {})
		recorded := time.Since(began)
		m := model
		m.LateAcquire = time.Second // a stall of this machine
		require.NoError(t, m.Check(l))
		t.Logf("faulty %v: recorded in %v, checked in %v", faulty, recorded, time.Since(began)-recorded)
	}
}

func TestOnePlantedDoubleGrantInALongHistoryIsFound(t *testing.T) {
	l := record(2000, 8, 4, nil, func(f *fake) { f.doubleAt = 100 })
	require.ErrorContains(t, model.Check(l), `"l0"`)
}

func TestAReleaseWithoutOwnerCheckIsFound(t *testing.T) {
	var planted *fake
	l := record(12_000, 8, 2, map[history.Kind]float64{history.Release: 0.1}, func(f *fake) {
		planted, f.anybody, f.lease = f, true, 20*ms // a release that is lost stops everybody for that long
	})
	require.Greater(t, planted.foreign, 5, "the fault has shown itself")
	require.ErrorContains(t, model.Check(l), `"l0"`)
}
