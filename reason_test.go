package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// sentinels are the exported errors by name, each of one package that has it.
var sentinels = map[string]error{
	"ErrNotAcquired": redlatch.ErrNotAcquired, "ErrLost": redlatch.ErrLost, "ErrReleased": redlatch.ErrReleased,
	"ErrMaxHold":     redlatch.ErrMaxHold,
	"ErrUnavailable": redlatch.ErrUnavailable, "ErrUnknownOutcome": redlatch.ErrUnknownOutcome,
	"ErrDenied":        redlatch.ErrDenied,
	"ErrNotReplicated": redlatch.ErrNotReplicated, "ErrReentry": rlock.ErrReentry, "ErrClosed": redlatch.ErrClosed,
	"ErrInvalidName": redlatch.ErrInvalidName, "ErrInvalidOption": redlatch.ErrInvalidOption,
	"ErrWrongType": redlatch.ErrWrongType, "ErrNewer": redlatch.ErrNewer,
	"ErrCapacityMismatch": rsemaphore.ErrCapacityMismatch, "ErrLatchExpired": rsemaphore.ErrLatchExpired,
	"ErrLatchDeleted":  rsemaphore.ErrLatchDeleted,
	"ErrBrokenBarrier": rsemaphore.ErrBrokenBarrier, "ErrOutOfRange": redlatch.ErrOutOfRange,
	"ErrOverflow": redlatch.ErrOverflow,
	"ErrMismatch": redlatch.ErrMismatch, "ErrAlreadyOpen": redlatch.ErrAlreadyOpen, "ErrCorrupt": redlatch.ErrCorrupt,
	"ErrNoStock": stock.ErrNoStock, "ErrLater": stock.ErrLater,
	"ErrNotEnded": redpacket.ErrNotEnded,
	"ErrSending":  redpacket.ErrSending, "ErrNoPacket": redpacket.ErrNoPacket, "ErrLimited": ratelimit.ErrLimited,
}

// again are those after which the same call may succeed later.
var again = map[string]bool{
	"ErrNotAcquired": true, "ErrUnavailable": true, "ErrUnknownOutcome": true, "ErrNotReplicated": true,
	"ErrLimited": true, "ErrLater": true,
	"ErrSending": true, "ErrNotEnded": true,
}

func TestReason_EveryExportedError_HasItsOwn(t *testing.T) {
	declared := map[string]bool{}
	for _, dir := range []string{"errors.go", "pubsub", "rlock", "rsemaphore", "rcounter"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, d := range f.Decls {
				if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
					for _, s := range g.Specs {
						for _, n := range s.(*ast.ValueSpec).Names {
							if strings.HasPrefix(n.Name, "Err") {
								declared[n.Name] = true
							}
						}
					}
				}
			}
			return nil
		}))
	}
	require.Len(t, sentinels, len(declared))
	capital := regexp.MustCompile(`[A-Z]`)
	seen := map[string]bool{}
	for name, err := range sentinels {
		require.True(t, declared[name], name)
		reason := capital.ReplaceAllStringFunc(strings.TrimPrefix(name, "Err"), func(s string) string {
			return "_" + strings.ToLower(s)
		})[1:]
		require.False(t, seen[reason])
		seen[reason] = true
		for _, e := range []error{err, fmt.Errorf("rlock: %q: %w", "x", err), errors.Join(errors.New("no paper"), err),
			errs.Edge("stock", err)} {
			require.Equal(t, reason, redlatch.Reason(e))
			require.Equal(t, again[name], redlatch.Retryable(e), name)
		}
	}
}

func TestReason_ErrorOfSeveralStates_IsOne(t *testing.T) {
	paper := errors.New("no paper")
	for _, c := range []struct {
		err    error
		reason string
		again  bool
	}{
		{nil, "ok", false},
		{paper, "other", false},
		{context.Canceled, "canceled", false},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), "timeout", false},
		{errors.Join(redlatch.ErrNotAcquired, context.Canceled), "canceled", false},
		{errors.Join(redlatch.ErrNotAcquired, context.DeadlineExceeded), "not_acquired", true},
		{errors.Join(context.DeadlineExceeded, redlatch.ErrUnavailable), "unavailable", true},
		{errors.Join(context.Canceled, redlatch.ErrLost), "lost", false},
		{errors.Join(redlatch.ErrMaxHold, redlatch.ErrLost), "lost", false},
		{errors.Join(context.Canceled, redlatch.ErrMaxHold), "max_hold", false},
		{errs.ErrOverwritten, "lost", false},
		{errors.Join(paper, redlatch.ErrUnknownOutcome), "unknown_outcome", true},
		{errs.Once(fmt.Errorf("x: %w", redlatch.ErrUnknownOutcome)), "unknown_outcome", false},
		{errs.Once(redlatch.ErrUnavailable), "unavailable", true},
	} {
		require.Equal(t, c.reason, redlatch.Reason(c.err), "%v", c.err)
		require.Equal(t, c.again, redlatch.Retryable(c.err), "%v", c.err)
	}
}

func TestRetryable_LostReplyThatWouldCountTwice_IsNot(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	hub := redistest.NoError(pubsub.New(rig.NewLossy(t, server, func() bool { return true }), pubsub.Options{}))(t)
	t.Cleanup(func() { hub.Close(context.Background()) })
	counters := redistest.NoError(rcounter.New(hub, rcounter.Options{CallTimeout: 5 * time.Second}))(t)
	semaphores := redistest.NoError(rsemaphore.New(hub, rsemaphore.Options{CallTimeout: 5 * time.Second}))(t)
	t.Cleanup(func() { semaphores.Close(context.Background()) })
	_, add := counters.Counter("c", rcounter.CounterOptions{}).Incr(t.Context())
	_, down := semaphores.CountDownLatch("l").CountDown(t.Context())
	_, publish := hub.Publish(t.Context(), "c", "m")
	for _, err := range []error{add, down, publish} {
		require.Equal(t, "unknown_outcome", redlatch.Reason(err), "%v", err)
		require.False(t, redlatch.Retryable(err), "%v", err)
	}
}

// statuses are what a handler answers, by Reason. All else is 500: an operator has to act.
var statuses = map[string]int{
	"ok":           http.StatusOK,
	"lost":         http.StatusConflict, // the work was under way, and somebody else may do it now
	"max_hold":     http.StatusConflict,
	"canceled":     499,               // the client has gone
	"not_acquired": http.StatusLocked, // somebody else works on it
	"unavailable":  http.StatusServiceUnavailable, "unknown_outcome": http.StatusServiceUnavailable,
	"limited": http.StatusTooManyRequests,
	"closed":  http.StatusServiceUnavailable, "not_replicated": http.StatusServiceUnavailable,
	"timeout": http.StatusServiceUnavailable,
}

// locked is a middleware: work on one object runs under the lock of its path. usually is how long that takes, which is
// what a client should wait. The lease of the holder is not a Retry-After: it has 20 to 30 s left however soon the
// holder is done. Only a request of which nothing was begun has one. What work has written when its lock turns out to
// be lost cannot be taken back: work that must not say 200 then writes its answer after Do.
func locked(locks *rlock.Client, usually time.Duration,
	work func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun, done := false, false
		err := locks.Reentrant(r.URL.Path).WithWait(usually).Do(r.Context(), func(ctx context.Context) error {
			begun = true
			err := work(w, r.WithContext(ctx)) // ctx ends if the lock is lost
			done = err == nil
			return err
		})
		reason := redlatch.Reason(err)
		if err == nil || done && reason != "lost" && reason != "max_hold" {
			return // a release that the server did not confirm goes on in the background: the work is done all the same
		}
		status := statuses[reason]
		if status == 0 {
			status = http.StatusInternalServerError
		}
		if !begun && redlatch.Retryable(err) {
			w.Header().Set("Retry-After", fmt.Sprint(max(1, int(usually.Seconds()))))
		}
		http.Error(w, http.StatusText(status), status)
	})
}

// A middleware that answers 409, 423, 499 and 503, each where it is right.
func ExampleReason() {
	defer serve()()
	ctx := context.Background()
	red, err := redlatch.Open(ctx, option, redlatch.Options{CallTimeout: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	defer red.Close(ctx)
	handler := locked(red.Locks(), 50*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) error {
		if r.Header.Get("Steal") != "" { // as if the lease had run out
			red.Locks().Reentrant(r.URL.Path).ForceUnlock(r.Context())
		}
		return nil
	})
	ask := func(ctx context.Context, steal string) {
		r := httptest.NewRequestWithContext(ctx, "POST", "/orders/17", nil)
		r.Header.Set("Steal", steal)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, "again after:", w.Header().Get("Retry-After") != "")
	}

	ask(ctx, "")
	ask(ctx, "yes")
	hold, err := red.Locks().Reentrant("/orders/17").Lock(ctx)
	if err != nil {
		panic(err)
	}
	ask(ctx, "")
	gone, leave := context.WithCancel(ctx)
	leave()
	ask(gone, "")
	hold.Unlock(ctx)
	// Output:
	// 200 again after: false
	// 409 again after: false
	// 423 again after: true
	// 499 again after: false
}

// A call is made again where that helps and does no harm.
func ExampleRetryable() {
	for _, err := range []error{redlatch.ErrUnavailable, redlatch.ErrLost, redlatch.ErrDenied} {
		fmt.Println(redlatch.Reason(err), redlatch.Retryable(err))
	}
	// Output:
	// unavailable true
	// lost false
	// denied false
}
