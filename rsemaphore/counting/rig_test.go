package counting_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/redistest"
	sent "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/rsemaphore"
)

var ctx = context.Background()

// patient are options for tests that are not about time: a busy machine may take its while.
var patient = rsemaphore.Options{CallTimeout: 10 * time.Second}

// rig is one process: a client of package rsemaphore on one server.
type rig struct {
	redis rueidis.Client
	c     *rsemaphore.Client
}

func newRig(t testing.TB, s *redistest.Server, o rsemaphore.Options) *rig {
	t.Helper()
	return newRigOn(t, s.Client(t), o)
}

// newRigOn is a rig on a rueidis client of the test's own making.
func newRigOn(t testing.TB, c rueidis.Client, o rsemaphore.Options) *rig {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 5 * time.Second
	}
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	r := &rig{redis: c}
	var err error
	r.c, err = rsemaphore.New(sent.HubOn(t, c, o.Logger), o)
	require.NoError(t, err)
	sent.CloseUnwaited(t, r.c)
	return r
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// waiters are the process's calls that wait.
func (r *rig) waiters() *wait.Waiters { return accessor.Of[*hold.Keeper](r.c).Waiters }

// isRefused reports whether somebody was refused permits of one semaphore, and waits.
func (r *rig) isRefused() bool { return r.waiters().Census().Waiting == 1 }

// do, must, text and number send one command past the library.
func (r *rig) do(t testing.TB, args ...string) rueidis.RedisResult {
	t.Helper()
	return sent.Raw(r.redis, args...)
}

func (r *rig) must(t testing.TB, args ...string) {
	t.Helper()
	sent.Must(t, r.redis, args...)
}

func (r *rig) text(t testing.TB, args ...string) string {
	t.Helper()
	return sent.Text(t, r.redis, args...)
}

func (r *rig) pttl(t testing.TB, key string) time.Duration {
	t.Helper()
	return time.Duration(r.number(t, "PTTL", key)) * time.Millisecond
}

func (r *rig) number(t testing.TB, args ...string) int64 {
	t.Helper()
	return sent.Number(t, r.redis, args...)
}

// load has the server know all scripts, so that the first reply to each is not that it does not.
func (r *rig) load(t testing.TB) {
	t.Helper()
	files := redistest.NoError(filepath.Glob("lua/*.lua"))(t)
	require.NotEmpty(t, files)
	for _, f := range files {
		text := redistest.NoError(script.Compose(os.DirFS("."), strings.TrimSuffix(filepath.Base(f), ".lua")))(t)
		r.must(t, "SCRIPT", "LOAD", text)
	}
}

// must1 is v, of a call that has to succeed.
func must1[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

func errOf[T any](_ T, err error) error { return err }

// waitingIn is until n requests of r stand in a line.
func waitingIn(t testing.TB, r *rig, line string, n int) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, fmt.Sprintf("%d wait in %s", n, line), func() bool {
		return r.waiters().Members(line) == n
	})
}
