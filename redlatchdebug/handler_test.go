package redlatchdebug_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/redlatchdebug"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

const patience = 30 * time.Second

// get asks the handler, and returns what it answers.
func get(t *testing.T, h http.Handler, query string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/debug/redlatch?"+query, nil))
	return w
}

// page is the page as JSON, as far as tests ask for it.
type page struct {
	Closed bool
	Mode   string
	Waits  struct {
		Total int
		Shown []struct {
			Client, Kind, Name string
			WaitingMs          float64  `json:"waiting_ms"`
			GivesUpMs          *float64 `json:"gives_up_ms"`
			Refused            bool
			Before             int
			Permits            int64
			Error              string
		}
	}
	Holds struct {
		Total int
		Shown []struct {
			Client, Kind, Name, Owner, Label string
			Permits                          int64
			Handles                          int
			SafeMs                           float64 `json:"safe_ms"`
			LeaseMs                          float64 `json:"lease_ms"`
			Renewed, Failing                 bool
			MaxHoldMs                        *float64 `json:"max_hold_ms"`
		}
	}
	Pending struct{ Total int } `json:"pending_releases"`
	Limits  struct {
		Total int
		Shown []struct {
			Client, Kind, Name, Key string
			Units, Burst            int64
			RefusedMs               float64 `json:"refused_ms"`
			PassesMs                float64 `json:"passes_ms"`
		}
	}
	Policies []struct {
		Name, Policy string
		LastMs       float64 `json:"last_ms"`
	}
	Server *struct {
		Answered       bool
		Asked, Omitted int
		Error          string
		Objects        []object
	}
	Clients []struct {
		Client, Tracking       string
		Held, Renewed, Waiting int
		HeartbeatMs            *float64 `json:"heartbeat_ms"`
		Clock                  *struct {
			AheadMs float64 `json:"ahead_ms"`
		}
	}
	Subscriptions struct{ Channels, Confirmed int }
	Errors        []struct {
		Client, What, Name, Reason, Error string
		Count                             int
	}
}

type object struct {
	Client, Kind, Name, Key, Error string
	Held                           bool
	Capacity, Free                 *int64
	LeaseLeftMs                    *float64 `json:"lease_left_ms"`
	Holders, Waiters               struct {
		Total int
		Shown []struct {
			Owner, Label string
			Here         bool
		}
	}
}

func read(t *testing.T, h http.Handler, query string) (p page) {
	t.Helper()
	w := get(t, h, "format=json&"+query)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	return p
}

// eventually reads the page until it is as it should be.
func eventually(t *testing.T, h http.Handler, query string, as func(page) bool) (p page) {
	t.Helper()
	require.Eventually(t, func() bool { p = read(t, h, query); return as(p) }, patience, 10*time.Millisecond)
	return p
}

// scene is a shop in the middle of its work, and another process beside it.
type debugRig struct {
	srv  *redlatchtest.Server
	red  *redlatch.Client
	page http.Handler
}

func newDebugRig(t *testing.T) *debugRig {
	srv := redlatchtest.New(t)
	heartbeat := 10 * time.Second // a busy machine must lose nothing
	if os.Getenv(screenshotEnv) != "" {
		heartbeat = time.Second // the first one tells which process it is
	}
	open := func(process string) *redlatch.Client {
		return srv.Open(redlatch.Options{Elections: func(o *election.Options) { o.Heartbeat = heartbeat },
			Locks: func(o *rlock.Options) { o.Liveness, o.Heartbeat, o.Process = true, heartbeat, process }})
	}
	red, other := open("shop-1"), open("shop-2")
	ctx, cancel := context.WithCancel(context.Background())
	var waits sync.WaitGroup
	s := &debugRig{srv, red, redlatchdebug.Handler(red)}
	require.Zero(t, read(t, s.page, "").Holds.Total)
	hold := func(_ *redlatch.Client, lock *rlock.Lock) *rlock.Hold {
		h := redistest.NoError(lock.Lock(t.Context()))(t)
		t.Cleanup(func() { h.Unlock(context.Background()) })
		return h
	}
	order := hold(red, red.Locks().Reentrant("order:4711").WithLabel("payment <3>"))
	again := redistest.NoError(red.Locks().Reentrant("order:4711").Lock(order.Context(t.Context())))(t)
	t.Cleanup(func() { again.Unlock(context.Background()) })
	hold(red, red.Locks().Fenced("ledger"))
	hold(red, red.Locks().Reentrant("import").WithLease(time.Minute))
	hold(red, red.Locks().ReadWrite("catalogue").Read())
	hold(other, other.Locks().Reentrant("invoices").WithLabel("month end"))
	l := redistest.NoError(red.Elections().Election("scheduler").Campaign(t.Context(), "10.0.0.7:8080"))(t)
	t.Cleanup(func() { l.Resign(context.Background()) })
	permit := func(red *redlatch.Client, n int, label string) {
		p := redistest.NoError(red.Semaphores().Semaphore("exports", 3).WithLabel(label).Acquire(t.Context(), n))(t)
		t.Cleanup(func() { p.Release(context.Background()) })
	}
	permit(red, 2, "nightly")
	permit(other, 1, "by hand")
	weight := redistest.NoError(red.Semaphores().WeightedSemaphore("memory", 1000).Acquire(t.Context(), 300))(t)
	t.Cleanup(func() { weight.Release(context.Background()) })
	redistest.NoError(red.Semaphores().CountDownLatch("warm").TrySetCount(t.Context(), 2, 0))(t)
	t.Cleanup(func() { cancel(); waits.Wait() }) // before what is held is released

	wait := func(name string, fn func() error) {
		began := read(t, s.page, "server=no").Waits.Total
		waits.Go(func() {
			if err := fn(); ctx.Err() == nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		eventually(t, s.page, "server=no", func(p page) bool { return p.Waits.Total == began+1 })
	}
	for range 2 {
		wait("invoices", func() error {
			_, err := red.Locks().Reentrant("invoices").WithWait(time.Hour).Lock(ctx)
			return err
		})
	}
	wait("catalogue", func() error { _, err := red.Locks().ReadWrite("catalogue").Write().Lock(ctx); return err })
	wait("exports", func() error { _, err := red.Semaphores().Semaphore("exports", 3).Acquire(ctx, 1); return err })
	wait("warm", func() error { return red.Semaphores().CountDownLatch("warm").Await(ctx) })
	wait("pool", func() error { return counting.New(red.Semaphores(), "pool").Acquire(ctx, 4) })
	wait("round", func() error { _, err := red.Semaphores().CyclicBarrier("round", 3).Await(ctx); return err })
	lost := hold(red, red.Locks().Reentrant("job:17"))
	srv.Lose("job:17")
	select {
	case <-lost.Done():
	case <-time.After(patience):
		t.Fatal("the hold was not lost")
	}
	eventually(t, s.page, "server=no", func(p page) bool { // all have been refused
		refused := 0
		for _, w := range p.Waits.Shown {
			if w.Refused {
				refused++
			}
		}
		return refused == 7 && len(p.Errors) > 0
	})
	return s
}

func TestPage_HeldAndWaitedFor_AreShown(t *testing.T) {
	t.Parallel()
	s := newDebugRig(t)
	p := eventually(t, s.page, "", func(p page) bool {
		return !slices.ContainsFunc(p.Server.Objects, func(o object) bool { return o.Error != "" })
	})
	require.Equal(t, "standalone", p.Mode)
	require.False(t, p.Closed)

	waits := map[string]int{}
	for _, w := range p.Waits.Shown {
		waits[w.Client+" "+w.Kind+" "+w.Name]++
		require.GreaterOrEqual(t, w.WaitingMs, 0.0)
		require.Empty(t, w.Error)
		require.Equal(t, w.Name == "invoices", w.GivesUpMs != nil, w.Name)
	}
	require.Equal(t, map[string]int{
		"locks Reentrant invoices": 2, "locks ReadWrite.Write catalogue": 1, "semaphores Semaphore exports": 1,
		"semaphores CountDownLatch warm": 1, "semaphores CountingSemaphore pool": 1, "semaphores CyclicBarrier round": 1,
	}, waits)
	require.Equal(t, 7, p.Waits.Total)
	require.Equal(t, []int{0, 1}, []int{p.Waits.Shown[0].Before, p.Waits.Shown[1].Before}, "one stands behind the other")

	holds := map[string]bool{}
	for _, h := range p.Holds.Shown {
		holds[h.Client+" "+h.Kind+" "+h.Name] = h.Renewed
		require.False(t, h.Failing)
		require.Greater(t, h.SafeMs, 0.0)
		require.LessOrEqual(t, h.SafeMs, h.LeaseMs)
		switch h.Name {
		case "order:4711":
			require.Equal(t, "payment <3>", h.Label)
			require.Equal(t, 2, h.Handles)
		case "exports":
			require.Equal(t, int64(2), h.Permits)
		case "memory":
			require.Equal(t, int64(300), h.Permits)
		}
	}
	require.Equal(t, map[string]bool{
		"locks Reentrant order:4711": true, "locks Fenced ledger": true, "locks Reentrant import": false,
		"locks ReadWrite.Read catalogue": true,
		"elections Fenced scheduler":     true, "semaphores Semaphore exports": true,
		"semaphores WeightedSemaphore memory": true,
		"semaphores CyclicBarrier round":      true,
	}, holds)

	require.True(t, p.Server.Answered)
	objects := map[string]int{}
	for _, o := range p.Server.Objects {
		require.Empty(t, o.Error, o.Name)
		objects[o.Client+" "+o.Name]++
		switch o.Name {
		case "invoices":
			require.True(t, o.Held)
			require.Equal(t, "month end", o.Holders.Shown[0].Label)
			require.False(t, o.Holders.Shown[0].Here)
			require.Equal(t, 1, o.Waiters.Total, "one of each process queues")
			require.True(t, o.Waiters.Shown[0].Here)
		case "exports":
			require.Equal(t, []int64{3, 0}, []int64{*o.Capacity, *o.Free})
			require.Equal(t, 3, o.Holders.Total)
			here := 0
			for _, h := range o.Holders.Shown {
				if h.Here {
					here++
				}
			}
			require.Equal(t, 2, here)
		case "warm":
			require.Equal(t, int64(2), *o.Capacity)
		case "round":
			require.Equal(t, []int64{3, 2}, []int64{*o.Capacity, *o.Free})
		}
	}
	require.Equal(t, map[string]int{"locks invoices": 1, "locks catalogue": 2, "semaphores exports": 1,
		"semaphores warm": 1, "semaphores pool": 1,
		"semaphores round": 1, "locks order:4711": 1, "locks ledger": 1, "locks import": 1, "elections scheduler": 1,
		"semaphores memory": 1}, objects,
		"each once, and both sides of a read-write lock")

	require.Equal(t, "locks", p.Clients[0].Client)
	require.Equal(t, 4, p.Clients[0].Held)
	require.Equal(t, 3, p.Clients[0].Waiting)
	require.NotNil(t, p.Clients[0].HeartbeatMs)
	require.NotNil(t, p.Clients[0].Clock)
	require.Less(t, p.Clients[0].Clock.AheadMs, float64(patience.Milliseconds()))
	require.Positive(t, p.Subscriptions.Channels)
	require.Equal(t, "locks", p.Errors[0].Client)
	require.Equal(t, "job:17", p.Errors[0].Name)
	require.Equal(t, "lost", p.Errors[0].Reason)
}

// What stands on the page is enough to find an owner in the log, and too little to act as one.
func TestPage_Owners_AreCutShort(t *testing.T) {
	t.Parallel()
	srv := redlatchtest.New(t)
	red := srv.Open()
	hold := redistest.NoError(red.Locks().Reentrant("l").WithLabel("a").Lock(t.Context()))(t)
	permit := redistest.NoError(red.Semaphores().Semaphore("s", 2).Acquire(t.Context(), 2))(t)
	// An error with an owner in it: of a join, long after.
	_, err := red.Locks().Reentrant("m").Lock(red.Locks().Reentrant("m").WithOwner(t.Context(), hold.Owner()))
	require.ErrorIs(t, err, redlatch.ErrLost)
	require.Contains(t, err.Error(), string(hold.Owner()))
	h := redlatchdebug.Handler(red)
	require.Len(t, read(t, h, "").Errors, 1)
	secrets := append(permit.IDs(), string(hold.Owner()), string(hold.Owner())[:36])
	for _, format := range []string{"json", "html"} {
		text := get(t, h, "format="+format).Body.String()
		for _, secret := range secrets {
			require.NotContains(t, text, secret)
			require.NotContains(t, text, secret[:12])
			require.Contains(t, text, secret[:8])
		}
		require.NotRegexp(t, regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}`), text)
	}
	require.NoError(t, permit.Release(t.Context()))
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestPage_OtherMethods_AreRefused(t *testing.T) {
	t.Parallel()
	h := redlatchdebug.Handler(redlatchtest.New(t).Open())
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		require.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
		require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	}
	for query, kind := range map[string]string{"": "text/html; charset=utf-8", "format=html": "text/html; charset=utf-8",
		"format=json": "application/json"} {
		whole := get(t, h, query)
		require.NotEmpty(t, whole.Body.String())
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("HEAD", "/?"+query, nil))
		require.Equal(t, http.StatusOK, w.Code)
		require.Empty(t, w.Body.String())
		require.Equal(t, whole.Header(), w.Header())
		require.Equal(t, kind, w.Header().Get("Content-Type"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}
	for query, text := range map[string]string{
		"format=xml": `format is "xml"`, "n=0": `n is "0"`, "n=10001": "1 to 10000", "n=x": `n is "x"`,
		"refresh=0": "refresh", "server=maybe": "server is", "%zz": "query",
	} {
		w := get(t, h, query)
		require.Equal(t, http.StatusBadRequest, w.Code, query)
		require.Contains(t, w.Body.String(), text)
		require.Contains(t, w.Header().Get("Content-Type"), "text/plain")
	}
	require.Contains(t, get(t, h, "refresh=7").Body.String(), `http-equiv="refresh" content="7"`)
	require.Panics(t, func() { redlatchdebug.Handler(nil) })
}

func TestPage_NamesAndLabels_AreNoMarkup(t *testing.T) {
	t.Parallel()
	red := redlatchtest.New(t).Open()
	name := `<script>alert("x")</script>`
	hold := redistest.NoError(red.Locks().Reentrant(name).WithLabel(`"><img src=x>`).Lock(t.Context()))(t)
	w := get(t, redlatchdebug.Handler(red), "name=%3Cscript")
	require.Contains(t, w.Body.String(), "&lt;script&gt;alert(")
	require.NotContains(t, w.Body.String(), "<script")
	require.NotContains(t, w.Body.String(), "<img")
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestPage_ManyHolds_ShowsTheOldestAndAFilter(t *testing.T) {
	t.Parallel()
	const many = 150
	srv := redlatchtest.New(t)
	red := srv.Open(redlatch.Options{Locks: func(o *rlock.Options) { o.WatchdogTimeout = time.Hour }})
	h := redlatchdebug.Handler(red)
	holds := make([]*rlock.Hold, many)
	for i := range holds {
		var err error
		holds[i], err = red.Locks().Reentrant(fmt.Sprint("order:", i)).Lock(t.Context())
		require.NoError(t, err)
	}
	p := read(t, h, "")
	require.Equal(t, many, p.Holds.Total)
	require.Len(t, p.Holds.Shown, 100)
	require.Equal(t, "order:0", p.Holds.Shown[0].Name)
	require.Equal(t, 16, p.Server.Asked)
	require.Equal(t, 84, p.Server.Omitted)
	html := get(t, h, "").Body.String()
	require.Contains(t, html, fmt.Sprintf("and %d more", many-100))
	require.Equal(t, 100, strings.Count(html, "<meter"))
	p = read(t, h, "name=order:14&n=12")
	require.Len(t, p.Holds.Shown, min(12, p.Holds.Total))
	require.GreaterOrEqual(t, p.Holds.Total, 11) // 14, 140 to 149
	require.Len(t, read(t, h, "n=10000&server=no").Holds.Shown, many)
	require.Nil(t, read(t, h, "server=no").Server)
	for _, hold := range holds {
		require.NoError(t, hold.Unlock(t.Context()))
	}
}

func TestPage_ServerSilent_SaysSo(t *testing.T) {
	t.Parallel()
	srv := redlatchtest.New(t)
	red := srv.Open(redlatch.Options{CallTimeout: 200 * time.Millisecond,
		Locks: func(o *rlock.Options) { o.CallTimeout, o.WatchdogTimeout = 200*time.Millisecond, time.Minute }})
	h := redlatchdebug.Handler(red)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	hold, err := red.Locks().Reentrant("l").Lock(ctx)
	for err != nil && ctx.Err() == nil { // a busy machine
		hold, err = red.Locks().Reentrant("l").Lock(ctx)
	}
	require.NoError(t, err)
	silent := srv.Break(redlatchtest.Fault{Kind: redlatchtest.Silent, Name: "l"})
	began := time.Now()
	p := read(t, h, "")
	t.Logf("the page took %v", time.Since(began))
	require.Less(t, time.Since(began), patience)
	require.False(t, p.Server.Answered)
	require.NotEmpty(t, p.Server.Error)
	require.Equal(t, "l", p.Holds.Shown[0].Name)
	w := get(t, h, "")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "The server did not answer")
	silent.Heal()
	eventually(t, h, "", func(p page) bool { return p.Server.Answered })
	require.NoError(t, hold.Unlock(ctx))
}

func TestPage_Failure_IsAmongTheErrors(t *testing.T) {
	t.Parallel()
	srv := redlatchtest.New(t)
	red := srv.Open()
	h := redlatchdebug.Handler(red)
	hold := redistest.NoError(red.Locks().Reentrant("renewed").Lock(t.Context()))(t)
	srv.Break(redlatchtest.Fault{Kind: redlatchtest.Denied, Name: "renewed"})
	denied := srv.Break(redlatchtest.Fault{Kind: redlatchtest.Denied, Name: "other"})
	_, err := red.Locks().Reentrant("other").Lock(t.Context())
	require.ErrorIs(t, err, redlatch.ErrDenied)
	denied.Heal()
	seen := map[string]string{}
	p := eventually(t, h, "server=no", func(p page) bool { // a hold that is 50 ms old is looked at
		for _, e := range p.Errors {
			seen[e.What+" "+e.Name] = e.Reason
		}
		return seen["renew renewed"] != "" && seen["acquire other"] != ""
	})
	for _, e := range p.Errors {
		require.NotEmpty(t, e.Error)
		require.Positive(t, e.Count)
	}
	require.Equal(t, "denied", seen["acquire other"])
	require.Equal(t, "denied", seen["renew renewed"])
	srv.Heal()
	hold.Unlock(t.Context()) // it may be lost on a busy machine
}

func TestPage_ClosedClient_IsShown(t *testing.T) {
	t.Parallel()
	red := redlatchtest.New(t).Open()
	h := redlatchdebug.Handler(red)
	require.NoError(t, red.Close(t.Context()))
	require.True(t, read(t, h, "").Closed)
	require.Contains(t, get(t, h, "").Body.String(), "The client is closed")
}

func TestPage_EverythingMoves_MayBeRead(t *testing.T) {
	t.Parallel()
	srv := redlatchtest.New(t)
	red := srv.Open(redlatch.Options{Elections: nil, Semaphores: nil})
	h := redlatchdebug.Handler(red)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 10 {
				err := red.Locks().Reentrant(fmt.Sprint("l", n%3)).Do(ctx, func(context.Context) error { return nil })
				if err == nil {
					err = red.Semaphores().Semaphore("s", 2).Do(ctx, 1, func(context.Context) error { return nil })
				}
				if err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for _, query := range []string{"", "format=json&name=l"} {
		readers.Go(func() {
			for {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/?"+query, nil))
				if w.Code != http.StatusOK {
					t.Error(w.Code, w.Body)
				}
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	all.Wait()
	close(done)
	readers.Wait()
}

func TestPage_Multi_IsAskedAbout(t *testing.T) {
	t.Parallel()
	srv := redlatchtest.New(t)
	red := srv.Open()
	h := redlatchdebug.Handler(red)
	srv.HoldElsewhere("b")
	both := redistest.NoError(rlock.Multi(red.Locks().Reentrant("a"), red.Locks().Reentrant("b")))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := both.Lock(ctx); ended <- err }()
	eventually(t, h, "", func(p page) bool { // it waits for all, or for the one that is not free
		return slices.ContainsFunc(p.Server.Objects, func(o object) bool {
			return o.Error == "" && (o.Kind == "Multi" && o.Holders.Total == 2 || o.Name == "b" && o.Holders.Total == 1)
		})
	})
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
