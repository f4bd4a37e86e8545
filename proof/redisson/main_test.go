package interop_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/redisson"
)

// roles are what this test binary can be when it runs itself again as another process: by the name in REDLATCH_ROLE.
var roles = map[string]func() error{}

func TestMain(m *testing.M) {
	if name := os.Getenv("REDLATCH_ROLE"); name != "" {
		if err := roles[name](); err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	everybody.end()
	os.Exit(code)
}

// keeper is a testing.TB for what lasts longer than the test that starts it: servers and JVMs are shared, because
// starting them takes longer than using them. Whatever goes wrong while it starts is the current test's.
type keeper struct {
	testing.TB
	current testing.TB
	ends    []func()
}

var everybody = &keeper{}

func (k *keeper) Helper()                   {}
func (k *keeper) Cleanup(f func())          { k.ends = append(k.ends, f) }
func (k *keeper) Fatalf(f string, a ...any) { k.current.Fatalf(f, a...) }
func (k *keeper) Skip(a ...any)             { k.current.Skip(a...) }
func (k *keeper) Errorf(f string, a ...any) { k.current.Errorf(f, a...) }
func (k *keeper) FailNow()                  { k.current.FailNow() }
func (k *keeper) TempDir() string {
	dir, err := os.MkdirTemp("", "redlatch-interop-")
	if err != nil {
		k.current.Fatalf("interop: %v", err)
	}
	k.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (k *keeper) end() {
	for len(k.ends) > 0 {
		f := k.ends[len(k.ends)-1]
		k.ends = k.ends[:len(k.ends)-1]
		f()
	}
}

var (
	starting sync.Mutex
	servers  = map[string]*redistest.Server{}
	nodes    = map[*redistest.Server][]rueidis.Client{}
	jvms     = map[interop.Release]*interop.JVM{}
	built    = sync.OnceValues(func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		return interop.Build(ctx)
	})
)

// driver is where the Java driver is, or the end of the test.
func driver(t testing.TB) string {
	t.Helper()
	redistest.SkipShort(t)
	dir, err := built()
	if err == nil {
		return dir
	}
	if os.Getenv(interop.RequireEnv) == "1" {
		t.Fatalf("%s=1: %v", interop.RequireEnv, err)
	}
	t.Skip(strings.ReplaceAll(err.Error(), "\n", " "))
	return ""
}

// world is a release of Redisson and a server.
type world struct {
	release interop.Release
	kind    string // standalone or cluster
	server  *redistest.Server
	jvm     *interop.JVM
	client  string // the Redisson client, with its default watchdog
}

func newWorld(t testing.TB, release interop.Release, kind string) *world {
	t.Helper()
	dir := driver(t)
	starting.Lock()
	defer starting.Unlock()
	everybody.current = t
	s := servers[kind]
	if s == nil {
		if kind == "cluster" {
			s = redistest.Cluster(everybody)
		} else {
			s = redistest.Start(everybody)
		}
		servers[kind] = s
	}
	j := jvms[release]
	if j == nil {
		j = redistest.NoError(interop.Start(dir, release, "-XX:TieredStopAtLevel=1"))(t)
		everybody.Cleanup(j.Kill)
		jvms[release] = j
	}
	w := &world{release: release, kind: kind, server: s, jvm: j, client: kind}
	if !opened[[2]string{string(release), kind}] {
		w.open(t, j, kind, 30*time.Second)
		opened[[2]string{string(release), kind}] = true
	}
	return w
}

var opened = map[[2]string]bool{}

// open makes a Redisson client of its own: to the server another process.
func (w *world) open(t testing.TB, j *interop.JVM, client string, watchdog time.Duration) {
	t.Helper()
	args := []any{watchdog.Milliseconds()}
	for _, a := range w.server.Addrs {
		args = append(args, a)
	}
	redistest.NoError(j.Do(within(t), "opening", client, "open", args...))(t)
}

var (
	newestAlone   = place{interop.Newest, "standalone"}
	newestCluster = place{interop.Newest, "cluster"}
	olderAlone    = place{interop.Older, "standalone"}
	olderCluster  = place{interop.Older, "cluster"}
	everywhere    = []place{newestAlone, newestCluster, olderAlone, olderCluster}
)

type place struct {
	release interop.Release
	kind    string
}

func (p place) String() string { return string(p.release) + "/" + p.kind }

// each runs f in each of the places, or in the first and the last of them.
func each(t *testing.T, places []place, f func(t *testing.T, w *world)) {
	t.Helper()
	if !redistest.Long() && len(places) > 2 {
		places = []place{places[0], places[len(places)-1]}
	}
	driver(t) // one line where there is no Java
	for _, p := range places {
		t.Run(p.String(), func(t *testing.T) { f(t, newWorld(t, p.release, p.kind)) })
	}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var serial atomic.Int64

// unique is a name that no other test uses.
func unique(_ testing.TB, what string) string {
	return fmt.Sprintf("%s-%d", what, serial.Add(1))
}

// lane is a Java thread.
type lane struct {
	jvm    *interop.JVM
	name   string
	client string
}

// lane starts a Java thread of the shared client.
func (w *world) lane(t testing.TB) *lane { return &lane{w.jvm, unique(t, "lane"), w.client} }

// other starts a Java thread of a Redisson client of its own.
func (w *world) other(t testing.TB, watchdog time.Duration) *lane {
	l := &lane{w.jvm, unique(t, "lane"), unique(t, "client")}
	w.open(t, w.jvm, l.client, watchdog)
	return l
}

// do has the thread do something, and returns what Redisson said.
func (l *lane) do(t testing.TB, verb string, args ...any) string {
	t.Helper()
	v, err := l.jvm.Do(within(t), l.name, l.client, verb, args...)
	require.NoError(t, err, "java: %s %v", verb, args)
	return v
}

// refused has the thread do something that Redisson answers with an exception, and returns its class.
func (l *lane) refused(t testing.TB, verb string, args ...any) string {
	t.Helper()
	v, err := l.jvm.Do(within(t), l.name, l.client, verb, args...)
	var e *interop.JavaError
	require.True(t, errors.As(err, &e), "java: %s %v: want an exception, got %q, %v", verb, args, v, err)
	return e.Class
}

// send has the thread do something that takes its time.
func (l *lane) send(verb string, args ...any) <-chan interop.Reply {
	return l.jvm.Send(l.name, l.client, verb, args...)
}

// got waits for what was sent, and says how long that took.
func got(t testing.TB, c <-chan interop.Reply) (string, time.Duration) {
	t.Helper()
	began := time.Now()
	select {
	case r := <-c:
		require.NoError(t, r.Err)
		return r.Value, time.Since(began)
	case <-time.After(40 * time.Second):
		require.FailNow(t, "no answer from Java")
		return "", 0
	}
}

// nodes asks every node of the server.
func (w *world) nodes(t testing.TB, args ...string) []string {
	t.Helper()
	var all []string
	w.onEach(t, func(c rueidis.Client) {
		list := redistest.NoError(c.Do(within(t), c.B().Arbitrary(args...).Build()).AsStrSlice())(t)
		all = append(all, list...)
	})
	return all
}

// listening waits until somebody is subscribed to a channel of that name and has gone to sleep: who has subscribed asks
// once more first.
func (w *world) listening(t testing.TB, name string) {
	t.Helper()
	shard := "CHANNELS"
	if w.kind == "cluster" {
		shard = "SHARDCHANNELS"
	}
	redistest.Eventually(t, 20*time.Second, "somebody listens to "+name, func() bool {
		for _, c := range w.nodes(t, "PUBSUB", shard) {
			if strings.Contains(c, "{"+name+"}") {
				return true
			}
		}
		return false
	})
	w.quiet(t)
}

// quiet waits until no process asks for a while: waiters sleep.
func (w *world) quiet(t testing.TB) {
	t.Helper()
	before := -1
	redistest.Eventually(t, 20*time.Second, "nobody asks any more", func() bool {
		now := w.scripts(t)
		if now == before {
			return true
		}
		before = now
		time.Sleep(20 * time.Millisecond)
		return false
	})
}

// scripts is how many scripts the server has run.
func (w *world) scripts(t testing.TB) int {
	n := 0
	w.onEach(t, func(c rueidis.Client) {
		calls := redistest.CommandCalls(t, c)
		n += calls["evalsha"] + calls["eval"]
	})
	return n
}

func (w *world) onEach(t testing.TB, f func(c rueidis.Client)) {
	t.Helper()
	starting.Lock()
	clients := nodes[w.server]
	if clients == nil {
		for _, a := range w.server.Addrs {
			c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{a}, ForceSingleClient: true,
				DisableCache: true})
			if err != nil {
				starting.Unlock()
				require.NoError(t, err)
			}
			everybody.Cleanup(c.Close)
			clients = append(clients, c)
		}
		nodes[w.server] = clients
	}
	starting.Unlock()
	for _, c := range clients {
		f(c)
	}
}
