package stock_test

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// A key that holds another type of value makes a script fail: before its first write, so that nothing is half done.
func TestAKeyOfAnotherTypeLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		client := on(t, c, exact)
		for _, key := range []string{"rc:{s}:u", "rc:{s}:r", "rc:{s}:h", "rc:{s}:l"} {
			must(t, c, "FLUSHALL")
			s := client.Stock("s")
			o := spec(100)
			o.Ledger = true
			_, err := s.Open(ctx, o)
			require.NoError(t, err)
			must(t, c, "SET", key, "somebody else's", "EX", "1000")
			before := hash(t, c, "rc:{s}")
			for name, verb := range map[string]func() error{
				"Claim":     func() error { _, err := s.Claim(ctx, "u"); return err },
				"ClaimAny":  func() error { _, err := s.ClaimAny(ctx, 2); return err },
				"ClaimOnce": func() error { _, err := s.Claim(ctx, "u", stock.Request{ID: "r", N: 2}); return err },
				"Reserve":   func() error { _, err := s.Reserve(ctx, "u", stock.Request{ID: "h", N: 1}, time.Minute); return err },
				"Cancel":    func() error { _, err := s.Cancel(ctx, "h2"); return err },
			} {
				if key == "rc:{s}:h" && name != "Reserve" {
					continue // do not use it
				}
				require.ErrorIs(t, verb(), errs.ErrWrongType, "%s with %s", name, key)
				require.Equal(t, before, hash(t, c, "rc:{s}"), "%s with %s", name, key)
			}
			require.Equal(t, "somebody else's", text(t, c, "GET", key))
			if key == "rc:{s}:h" {
				continue
			}
			must(t, c, "DEL", key)
			require.True(t, claimed(t, s, "u").Won(), "when it is gone the stock sells on")
		}
	})
}

// Each key of a stock with claimants, requests and reservations is lost in turn: from then on nothing is granted, and
// nothing is created.
func TestLosingAnyKeyStopsTheSale(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		client := on(t, c, exact)
		for key, want := range map[string]error{"rc:{s}": nil, "rc:{s}:u": errs.ErrCorrupt, "rc:{s}:r": errs.ErrCorrupt,
			"rc:{s}:h": errs.ErrCorrupt} {
			for how, lose := range map[string]func(){"deleted": func() {
				must(t, c, "DEL", key)
			}, "expired": func() { expire(t, srv, c, key) }} {
				must(t, c, "FLUSHALL")
				s := client.Stock("s")
				o := spec(100)
				o.PerUser = 10
				_, err := s.Open(ctx, o)
				require.NoError(t, err)
				require.True(t, claimed(t, s, "ann").Won())
				_, err = s.Claim(ctx, "bob", stock.Request{ID: "r", N: 3})
				require.NoError(t, err)
				r, err := s.Reserve(ctx, "cid", stock.Request{ID: "h", N: 2}, 10*time.Minute)
				require.NoError(t, err)
				require.True(t, r.Won())
				lose()
				before := keys(t, c)
				for name, verb := range map[string]func() (bool, error){
					"Claim":    func() (bool, error) { g, err := s.Claim(ctx, "new"); return g.Won(), err },
					"a retry":  func() (bool, error) { g, err := s.Claim(ctx, "ann"); return g.Won(), err },
					"ClaimAny": func() (bool, error) { g, err := s.ClaimAny(ctx, 2); return g.Won(), err },
					"ClaimOnce": func() (bool, error) {
						g, err := s.Claim(ctx, "new", stock.Request{ID: "r2", N: 2})
						return g.Won(), err
					},
					"Reserve": func() (bool, error) {
						r, err := s.Reserve(ctx, "new", stock.Request{ID: "h2", N: 1}, time.Minute)
						return r.Won(), err
					},
					"ReturnOnce": func() (bool, error) {
						n, err := s.Return(ctx, stock.Units{Request: "r"})
						return n > 0, err
					},
					"Cancel": func() (bool, error) { return s.Cancel(ctx, "h") },
					"Confirm": func() (bool, error) {
						g, err := s.Confirm(ctx, "h")
						if want == nil {
							require.ErrorIs(t, err, stock.ErrNotFound)
							err = nil
						}
						return g.Won(), err
					},
				} {
					did, err := verb()
					require.ErrorIs(t, err, want, "%s with %s %s", name, key, how)
					require.False(t, did, "%s with %s %s", name, key, how)
				}
				require.ElementsMatch(t, before, keys(t, c), key)
			}
		}
	})
}

// A returned unit is sold again at once, however many others ask for what is not there: nothing is ever decremented
// first and put back afterwards, so nothing hides it.
func TestAReturnIsResoldWithinMillisecondsUnderASoldOutCrowd(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	s := opened(t, on(t, srv.Client(t), exact), "s", 20)
	type win struct {
		claimant string
		ordinal  int64
	}
	holders := make(chan win, 20)
	for i := range 20 {
		u := "u" + strconv.Itoa(i)
		holders <- win{u, claimed(t, s, u).Ordinal}
	}
	stop := make(chan struct{})
	resold := make(chan win, 1)
	var wg sync.WaitGroup
	crowd := on(t, srv.Client(t), exact).Stock("s")
	for i := range 64 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				u := "c" + strconv.Itoa(i) + "-" + strconv.Itoa(n)
				if g, err := crowd.Claim(ctx, u); err != nil {
					t.Error(err)
					return
				} else if g.Won() {
					resold <- win{u, g.Ordinal}
				}
			}
		})
	}
	var took []time.Duration
	for range 200 {
		h := <-holders
		began := time.Now()
		ok, err := s.Return(ctx, stock.Units{Claimant: h.claimant, Ordinal: h.ordinal})
		require.NoError(t, err)
		require.Positive(t, ok)
		select {
		case next := <-resold:
			took = append(took, time.Since(began))
			holders <- next
		case <-time.After(20 * time.Second):
			t.Fatal("a returned unit is not sold again")
		}
	}
	close(stop)
	wg.Wait()
	slices.Sort(took)
	t.Logf("200 of 200 resold; from before the return: p50 %v, p99 %v", took[100], took[198])
	require.Less(t, took[100], time.Second)
	require.Equal(t, "20", text(t, raw, "HGET", "rc:{s}", "sold"))
}

// No lock is on the path of a claim: a process that stops in the middle of one keeps nobody from theirs, and the units
// it may have taken are its own.
func TestAProcessThatStopsInTheMiddleOfAClaimDelaysNobody(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv)
	release := make(chan struct{})
	stuck := on(t, proxy.Server().Client(t), stock.Options{CallTimeout: 20 * time.Second}).Stock("s")
	s := opened(t, on(t, srv.Client(t), exact), "s", 50)
	for i, fate := range []redistest.Fate{redistest.HoldRequest, redistest.HoldReply} {
		trap := proxy.Trap(&redistest.Trap{Match: redistest.With("stopped" + strconv.Itoa(i)), Fate: fate, Release: release})
		done := make(chan stock.Grant, 1)
		go func() {
			g, err := stuck.Claim(ctx, "stopped"+strconv.Itoa(i))
			if err != nil {
				t.Error(err)
			}
			done <- g
		}()
		trap.Wait(t)
		for n := range 20 {
			require.True(t, claimed(t, s, strings.Repeat("x", i+1)+strconv.Itoa(n)).Won())
		}
		select {
		case <-done:
			t.Fatal("it was not stopped")
		default:
		}
		close(release)
		require.True(t, (<-done).Won())
		release = make(chan struct{})
	}
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 42, st.Sold)
	require.EqualValues(t, 42, st.Seq)
}
