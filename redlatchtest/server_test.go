package redlatchtest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// report is the t of a test of which we want to know what it says.
type report struct {
	example
	failed strings.Builder
}

func (r *report) Errorf(f string, a ...any) { fmt.Fprintf(&r.failed, f, a...) }
func (r *report) Fatalf(f string, a ...any) {
	r.Errorf(f, a...)
	panic(r)
}

// reported is what a test reports that does this.
func reported(t *testing.T, do func(srv *redlatchtest.Server)) string {
	t.Helper()
	r := &report{}
	synctest.Test(t, func(*testing.T) {
		defer r.end()
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		do(redlatchtest.New(r))
	})
	return r.failed.String()
}

// kept is what tests hold and do not release. In a bubble nothing may be forgotten: the garbage collector, which is
// outside, would tell the library, and so wake what is inside.
var kept struct {
	sync.Mutex
	all []any
}

func keep[T any](v T, _ error) T {
	kept.Lock()
	defer kept.Unlock()
	kept.all = append(kept.all, v)
	return v
}

func TestServer_TestLeavesSomething_IsReported(t *testing.T) {
	ctx := context.Background()
	for what, c := range map[string]struct {
		do   func(srv *redlatchtest.Server)
		says string
	}{
		"nothing": {func(srv *redlatchtest.Server) { srv.Open() }, ""},
		"a hold": {func(srv *redlatchtest.Server) {
			keep(srv.Open().Locks().Reentrant("order:1").Lock(ctx))
		}, `: acquired and never released: ["order:1"]`},
		"a hold under a prefix": {func(srv *redlatchtest.Server) {
			keep(srv.Open(redlatch.Options{KeyPrefix: "app:"}).Locks().Reentrant("order:1").Lock(ctx))
		}, "app:order:1"},
		"a permit": {func(srv *redlatchtest.Server) {
			keep(srv.Open().Semaphores().Semaphore("exports", 3).Acquire(ctx, 2))
		}, "exports"},
		"a client": {func(srv *redlatchtest.Server) {
			c, err := rueidis.NewClient(srv.Option())
			if err == nil {
				time.AfterFunc(time.Minute, c.Close) // the bubble has to end
			}
		}, "connections of clients that were not closed"},
		"what others hold": {func(srv *redlatchtest.Server) {
			srv.HoldElsewhere("order:1")
			srv.TakeElsewhere("exports", 1, 3)
		}, ""},
		"a hold that was lost": {func(srv *redlatchtest.Server) {
			keep(srv.Open().Locks().Reentrant("order:1").Lock(ctx))
			srv.Lose("order:1")
			time.Sleep(time.Second)
		}, ""},
		"one kept for a time": {func(srv *redlatchtest.Server) {
			h := keep(srv.Open().Locks().Fenced("job").Lock(ctx))
			h.UnlockAfter(ctx, time.Hour)
		}, ""},
		"a Multi that was held": {func(srv *redlatchtest.Server) { held(srv, true) }, ""},
		"a Multi that is held":  {func(srv *redlatchtest.Server) { held(srv, false) }, "a"},
		"readers that were one": {func(srv *redlatchtest.Server) { readers(srv.Open(), 2) }, ""},
		"a reader":              {func(srv *redlatchtest.Server) { readers(srv.Open(), 1) }, "book"},
		"a call of unknown outcome": {func(srv *redlatchtest.Server) {
			srv.Break(redlatchtest.Fault{Kind: redlatchtest.LostReply, Name: "order:1"})
			srv.Open().Locks().Reentrant("order:1").TryLock(ctx, 0, 0)
		}, ""},
		"a counting semaphore": {func(srv *redlatchtest.Server) {
			s := counting.New(srv.Open().Semaphores(), "jobs")
			s.Release(ctx, 1)
			s.Acquire(ctx, 1)
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			got := reported(t, c.do)
			require.Equal(t, c.says == "", got == "", got)
			require.Contains(t, got, c.says)
		})
	}
}

// A test that forgets a release does not wait for one as long as for a release that is under way.
func TestServer_NobodyReleases_TestEndsSoon(t *testing.T) {
	for what, c := range map[string]struct {
		do   func(h *rlock.Hold, srv *redlatchtest.Server)
		took time.Duration
		says string
	}{
		"nobody releases": {func(*rlock.Hold, *redlatchtest.Server) {}, 2 * time.Second, "never released"},
		"released in the background": {func(h *rlock.Hold, srv *redlatchtest.Server) {
			down := srv.Break(redlatchtest.Fault{Kind: redlatchtest.Unavailable})
			released := make(chan error)
			go func() { released <- h.Unlock(context.Background()) }()
			<-released
			time.AfterFunc(4*time.Second, down.Heal)
		}, 0, ""}, // the end of the test heals
	} {
		t.Run(what, func(t *testing.T) {
			r := &report{}
			synctest.Test(t, func(*testing.T) {
				srv := redlatchtest.New(r)
				h := keep(srv.Open().Locks().Reentrant("a").Lock(context.Background()))
				c.do(h, srv)
				began := time.Now()
				r.end()
				require.InDelta(t, c.took+time.Second/2, time.Since(began), float64(time.Second/2))
			})
			require.Equal(t, c.says == "", r.failed.String() == "", r.failed.String())
			require.Contains(t, r.failed.String(), c.says)
		})
	}
}

// What a simulated day costs is what is sent in it.
func TestServer_SimulatedDay_HasNoPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		is(t, srv.Open().Locks().Reentrant("a").Do(t.Context(), func(context.Context) error { return nil }), nil)
		before := srv.Redis().CommandCount()
		time.Sleep(24 * time.Hour)
		require.LessOrEqual(t, srv.Redis().CommandCount()-before, 3*24*60, "one a minute on each connection")
	})
}

// held holds a lock of two, and releases it or not.
func held(srv *redlatchtest.Server, release bool) {
	locks := srv.Open().Locks()
	both, _ := rlock.Multi(locks.Reentrant("a"), locks.Reentrant("b"))
	hold := keep(both.Lock(context.Background()))
	if release {
		hold.Unlock(context.Background())
	}
}

// readers has two of one process read, and some of them end.
func readers(red *redlatch.Client, end int) {
	var holds [2]*rlock.Hold
	for i := range holds {
		holds[i] = keep(red.Locks().ReadWrite("book").Read().Lock(context.Background()))
	}
	for _, hold := range holds[:end] {
		hold.Unlock(context.Background())
	}
}

func TestServer_WronglyUsed_EndsTheTestAndSaysWhy(t *testing.T) {
	for says, do := range map[string]func(srv *redlatchtest.Server){
		`HoldElsewhere "a": rlock: "a" not acquired`: func(srv *redlatchtest.Server) {
			srv.HoldElsewhere("a")
			srv.HoldElsewhere("a")
		},
		"kind is [9]":      func(srv *redlatchtest.Server) { srv.HoldElsewhere("a", 9) },
		`no one holds "a"`: func(srv *redlatchtest.Server) { srv.Lose("a") },
		`no one holds "visits"`: func(srv *redlatchtest.Server) {
			srv.Redis().Set("visits", "7")
			srv.Expire("visits")
		},
		`no one holds "{slots}"`: func(srv *redlatchtest.Server) { // the permits are those of another semaphore
			keep(srv.Open().Semaphores().Semaphore("slots", 1).Acquire(context.Background(), 1))
			srv.Redis().Set("{slots}", "7")
			srv.Lose("{slots}")
		},
		"no such sale":          func(srv *redlatchtest.Server) { srv.SellOut("phones") },
		"Fault.Kind is Kind(0)": func(srv *redlatchtest.Server) { srv.Break(redlatchtest.Fault{}) },
		"Fault.Delay is 0s with Kind Slow": func(srv *redlatchtest.Server) {
			srv.Break(redlatchtest.Fault{Kind: redlatchtest.Slow})
		},
		"Fault.Skip is -1": func(srv *redlatchtest.Server) {
			srv.Break(redlatchtest.Fault{Kind: redlatchtest.Silent, Skip: -1})
		},
		"Advance by -1s": func(srv *redlatchtest.Server) { srv.Advance(-time.Second) },
		"Open takes one Options, not 2": func(srv *redlatchtest.Server) {
			srv.Open(redlatch.Options{}, redlatch.Options{})
		},
		"open: redlatch: rlock: invalid opt": func(srv *redlatchtest.Server) {
			srv.Open(redlatch.Options{Locks: func(o *rlock.Options) { o.MaxHold = 1 }})
		},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, reported(t, do), says)
		})
	}
}

// Whatever is held can be lost, run out, and be held elsewhere, of every kind; waiters have it afterwards.
func TestLose_EveryPrimitive_TakesItFromItsHolder(t *testing.T) {
	ctx := context.Background()
	type held interface{ Done() <-chan struct{} }
	release := func(h held) error {
		if hold, ok := h.(*rlock.Hold); ok {
			return hold.Unlock(ctx)
		}
		return h.(interface{ Release(context.Context) error }).Release(ctx)
	}
	of := func(lock *rlock.Lock) func() (held, error) {
		return func() (held, error) { return lock.Lock(ctx) }
	}
	for what, acquire := range map[string]func(red *redlatch.Client) func() (held, error){
		"Reentrant":    func(red *redlatch.Client) func() (held, error) { return of(red.Locks().Reentrant("x")) },
		"NonReentrant": func(red *redlatch.Client) func() (held, error) { return of(red.Locks().NonReentrant("x")) },
		"Fenced":       func(red *redlatch.Client) func() (held, error) { return of(red.Locks().Fenced("x")) },
		"Spin": func(red *redlatch.Client) func() (held, error) {
			return of(red.Locks().Spin("x", time.Millisecond, 10*time.Millisecond))
		},
		"Fair":     func(red *redlatch.Client) func() (held, error) { return of(red.Locks().Fair("x")) },
		"Plain":    func(red *redlatch.Client) func() (held, error) { return of(red.Locks().Plain("x")) },
		"Read":     func(red *redlatch.Client) func() (held, error) { return of(red.Locks().ReadWrite("x").Read()) },
		"Write":    func(red *redlatch.Client) func() (held, error) { return of(red.Locks().ReadWrite("x").Write()) },
		"in{tags}": func(red *redlatch.Client) func() (held, error) { return of(red.Locks().Reentrant("x{y}")) },
		"Semaphore": func(red *redlatch.Client) func() (held, error) {
			return func() (held, error) { return red.Semaphores().Semaphore("x", 3).Acquire(ctx, 3) }
		},
		"WeightedSemaphore": func(red *redlatch.Client) func() (held, error) {
			return func() (held, error) { return red.Semaphores().WeightedSemaphore("x", 3).Acquire(ctx, 3) }
		},
	} {
		name := "x"
		if what == "in{tags}" {
			name = "x{y}"
		}
		for how, take := range map[string]func(srv *redlatchtest.Server){
			"Lose":    func(srv *redlatchtest.Server) { srv.Lose(name) },
			"Expire":  func(srv *redlatchtest.Server) { srv.Expire(name) },
			"Advance": func(srv *redlatchtest.Server) { srv.Advance(time.Minute) },
		} {
			t.Run(what+" "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					srv := redlatchtest.New(t)
					first, err := acquire(srv.Open())()
					is(t, err, nil)
					time.Sleep(time.Second)
					began := time.Now()
					take(srv)
					<-first.Done()
					soon := 50 * time.Millisecond // of the bubble's time
					if strings.Contains(what, "Semaphore") {
						soon = 10 * time.Second // a permit's next renewal
					}
					require.LessOrEqual(t, time.Since(began), soon, "until the holder was told")
					is(t, release(first), redlatch.ErrLost)
					next, err := acquire(srv.Open())()
					is(t, err, nil)
					is(t, release(next), nil)
				})
			})
		}
	}
}

func TestHoldElsewhere_EveryKind_KeepsItOut(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		locks := red.Locks()
		for kind, lock := range map[redlatchtest.LockKind]*rlock.Lock{
			redlatchtest.Reentrant: locks.Reentrant("reentrant"),
			redlatchtest.Fenced:    locks.Fenced("fenced"),
			redlatchtest.Fair:      locks.Fair("fair"),
			redlatchtest.Plain:     locks.Plain("plain"),
			redlatchtest.Read:      locks.ReadWrite("read").Write(),
			redlatchtest.Write:     locks.ReadWrite("write").Read(),
		} {
			release := srv.HoldElsewhere(lock.Name(), kind)
			_, err := once(t, lock)
			is(t, err, redlatch.ErrNotAcquired)
			time.AfterFunc(time.Minute, release)
			hold, err := lock.Lock(t.Context()) // a minute later
			is(t, err, nil)
			is(t, hold.Unlock(t.Context()), nil)
			release() // again: nothing
		}
	})
}

func TestSellOut_PacketAndSale_AreSoldOut(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		p := packet(t, red)
		srv.SellOut("new-year")
		share, err := p.Grab(t.Context(), "ann")
		is(t, err, nil)
		require.Equal(t, redpacket.SoldOut, share.Why)
		s := openSale(t, red, stock.Spec{Items: map[string]stock.Item{"a": {Limit: 5}, "b": {Limit: 1}, "c": {Limit: 2}}})
		_, err = s.Reserve(t.Context(), stock.Order{User: "ann", Lines: []stock.Line{{Item: "a", N: 1}, {Item: "b", N: 1}}},
			time.Minute)
		is(t, err, nil)
		srv.SellOut("phones")
		stand, err := s.Inspect(t.Context())
		is(t, err, nil)
		for item, sold := range map[string]int64{"a": 4, "b": 0, "c": 2} {
			require.Equal(t, sold, stand.Items[item].Sold, item)
		}
	})
}

// Faults strike what they name, as often as they say.
func TestFault_NameSkipAndTimes_StrikeThoseCallsOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		fault := srv.Break(redlatchtest.Fault{Kind: redlatchtest.Denied, Name: "app:a", Skip: 1, Times: 2})
		for i, c := range []struct {
			name string
			want error
		}{{"a", nil}, {"app:a", nil}, {"app:a", redlatch.ErrDenied}, {"app:aa", nil}, {"app:a", redlatch.ErrDenied},
			{"app:a", nil}} {
			_, err := red.Locks().Reentrant(c.name).IsLocked(t.Context())
			require.ErrorIs(t, err, c.want, "call %d, of %q", i, c.name)
		}
		require.EqualValues(t, 2, fault.Calls())
	})
}

func TestFault_Silent_RunsTheCallWhenHealed(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		hold, err := once(t, red.Locks().Reentrant("order:1"))
		is(t, err, nil)
		silent := srv.Break(redlatchtest.Fault{Kind: redlatchtest.Silent, Name: "order:1"})
		var unlock sync.WaitGroup
		unlock.Go(func() { is(t, hold.Unlock(t.Context()), nil) })
		<-silent.Caught()
		require.True(t, srv.Redis().Exists("order:1"), "the release has not run")
		time.Sleep(time.Second)
		silent.Heal()
		unlock.Wait()
		require.False(t, srv.Redis().Exists("order:1"), "the release has run")
		require.EqualValues(t, 1, silent.Calls())
	})
}

func TestFault_Slow_TakesItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		srv.Break(redlatchtest.Fault{Kind: redlatchtest.Slow, Delay: time.Second, Match: func(words []string) bool {
			return words[0] == "EVALSHA" || words[0] == "EVAL"
		}})
		began := time.Now()
		_, err := red.Locks().Reentrant("order:1").IsLocked(t.Context())
		is(t, err, nil)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// The release of a call that left without its reply is pending for a CallTimeout, and is no leak.
func TestServer_CallLeftWithLongCallTimeout_IsNotReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		red := srv.Open(redlatch.Options{CallTimeout: time.Minute})
		slow := srv.Break(redlatchtest.Fault{Kind: redlatchtest.Slow, Delay: time.Second, Name: "order:1"})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := red.Locks().Reentrant("order:1").Lock(ctx)
		is(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 1, slow.Calls())
	})
}

// Several Opens are several processes.
func TestOpen_Several_AreProcessesThatExcludeEachOther(t *testing.T) {
	srv := redlatchtest.New(t) // outside a bubble: real time, and no port
	ctx := context.Background()
	first, err := srv.Open().Locks().Reentrant("order:1").Lock(ctx)
	is(t, err, nil)
	next := make(chan error, 1)
	waiting := srv.Open().Locks().Reentrant("order:1")
	go func() { next <- waiting.Do(ctx, func(context.Context) error { return nil }) }()
	_, err = once(t, srv.Open().Locks().Reentrant("order:1"))
	is(t, err, redlatch.ErrNotAcquired)
	is(t, first.Unlock(ctx), nil)
	is(t, <-next, nil)
}
