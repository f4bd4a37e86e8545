package rsemaphore_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rsemaphore"
)

// rig is one process as the library sees it: a client, a hub and a client of this package on one server.
type rig struct {
	server *redistest.Server
	redis  rueidis.Client
	hub    *pubsub.Hub
	c      *rsemaphore.Client
}

func newRig(t testing.TB, s *redistest.Server, o rsemaphore.Options) *rig {
	t.Helper()
	return newRigWith(t, s, o, func(*rueidis.ClientOption) {})
}

func newRigWith(t testing.TB, s *redistest.Server, o rsemaphore.Options, change func(*rueidis.ClientOption)) *rig {
	t.Helper()
	c, hub := wire.Process(t, s, quiet(o).Logger, change)
	return newRigOf(t, s, c, hub, o)
}

// newRigOn is a rig on a rueidis client of the test's own making.
func newRigOn(t testing.TB, s *redistest.Server, c rueidis.Client, o rsemaphore.Options) *rig {
	t.Helper()
	return newRigOf(t, s, c, wire.HubOn(t, c, quiet(o).Logger), o)
}

func quiet(o rsemaphore.Options) rsemaphore.Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func newRigOf(t testing.TB, s *redistest.Server, c rueidis.Client, hub *pubsub.Hub, o rsemaphore.Options) *rig {
	t.Helper()
	o = quiet(o)
	if o.CallTimeout == 0 && o.WatchdogTimeout == 0 {
		o.CallTimeout = 5 * time.Second // where it is not what is tested, no machine is so busy that a call is given up
	}
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	r := &rig{server: s, redis: c, hub: hub}
	var err error
	r.c, err = rsemaphore.New(r.hub, o)
	require.NoError(t, err)
	wire.CloseUnwaited(t, r.c)
	return r
}

// eachAtOnce is redistest.Each, both at the same time: for what waits most of the time.
func eachAtOnce(t *testing.T, fn func(t *testing.T, s *redistest.Server)) {
	redistest.SideBySide(t, map[string]func(testing.TB) *redistest.Server{
		"embedded": redistest.Embedded, "redis": func(t testing.TB) *redistest.Server { return redistest.Start(t) },
	}, func(t *testing.T, _ string, start func(testing.TB) *redistest.Server) { fn(t, start(t)) })
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// do sends one command past the library.
func (r *rig) do(_ testing.TB, args ...string) rueidis.RedisResult { return wire.Raw(r.redis, args...) }

func (r *rig) must(t testing.TB, args ...string) {
	t.Helper()
	wire.Must(t, r.redis, args...)
}

func (r *rig) text(t testing.TB, args ...string) string {
	t.Helper()
	return wire.Text(t, r.redis, args...)
}

func (r *rig) number(t testing.TB, args ...string) int64 {
	t.Helper()
	return wire.Number(t, r.redis, args...)
}

func (r *rig) pttl(t testing.TB, key string) time.Duration {
	t.Helper()
	return time.Duration(r.number(t, "PTTL", key)) * time.Millisecond
}

// keys are those of all objects on a single server.
func (r *rig) keys(t testing.TB) []string {
	t.Helper()
	return redistest.Objects(wire.Keys(t, r.redis))
}

// now is the server's time in ms.
func (r *rig) now(t testing.TB) int64 {
	t.Helper()
	return wire.ServerNow(t, r.redis)
}

// connectRole is a role's rig.
func connectRole(o rsemaphore.Options) (rueidis.Client, *rsemaphore.Client, error) {
	c, hub, err := wire.Role()
	if err != nil {
		return nil, nil, err
	}
	o.RetryTimeout = redistest.Retries(o.CallTimeout)
	sc, err := rsemaphore.New(hub, o)
	return c, sc, err
}

var instant = regexp.MustCompile(`\b1[6-9]\d{11}\b`)

// contents is all that a key holds, "" if there is none.
func (r *rig) contents(t testing.TB, key string) string {
	t.Helper()
	switch kind := r.text(t, "TYPE", key); kind {
	case "none":
		return ""
	case "string":
		return r.text(t, "GET", key)
	case "hash":
		m := redistest.NoError(r.do(t, "HGETALL", key).AsStrMap())(t)
		var fields []string
		for _, f := range slices.Sorted(maps.Keys(m)) {
			fields = append(fields, f+"="+m[f])
		}
		return instant.ReplaceAllString(strings.Join(fields, ", "), "T")
	case "zset":
		m := redistest.NoError(r.do(t, "ZRANGE", key, "0", "-1", "WITHSCORES").AsZScores())(t)
		var members []string
		for _, z := range m {
			members = append(members, z.Member+"="+strconv.FormatFloat(z.Score, 'f', -1, 64))
		}
		return instant.ReplaceAllString(strings.Join(members, ", "), "T")
	default:
		return kind
	}
}

// heardWhile is what is published on channel while fn runs.
func (r *rig) heardWhile(t testing.TB, channel string, fn func()) (got []string) {
	t.Helper()
	heard, stop := wire.Overhear(t, r.redis, []string{channel}, nil)
	defer stop()
	fn()
	for _, m := range heard() {
		_, text, _ := strings.Cut(m, " ")
		got = append(got, text)
	}
	return got
}

// heeding is an Observer of one kind of event.
func heeding(kind redlatch.EventKind, f func(e redlatch.Event)) rsemaphore.Observer {
	return func(ctx context.Context, e redlatch.Event) context.Context {
		if e.Kind == kind {
			f(e)
		}
		return ctx
	}
}

func errOf[T any](_ T, err error) error { return err }

// patient are options for tests that are not about time: a busy machine may take its while.
var patient = rsemaphore.Options{CallTimeout: 10 * time.Second}

var ctx = context.Background()

// must1 is v, of a call that has to succeed.
func must1[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// waitingIn is until n requests of r stand in a line.
func waitingIn(t testing.TB, r *rig, line string, n int) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, fmt.Sprintf("%d wait in %s", n, line), func() bool {
		return r.c.Waiting(line) == n
	})
}

// load has the server know these scripts, so that the first reply to each is not that it does not.
func (r *rig) load(t testing.TB, pattern string) {
	t.Helper()
	files := redistest.NoError(filepath.Glob("lua/" + pattern + ".lua"))(t)
	require.NotEmpty(t, files)
	for _, f := range files {
		r.must(t, "SCRIPT", "LOAD", source(t, strings.TrimSuffix(filepath.Base(f), ".lua")))
	}
}
