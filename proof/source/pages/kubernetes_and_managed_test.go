package pages_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock/election"
)

// Worker consumes its part of 16 shards until stopping ends, which is that of
// signal.NotifyContext(context.Background(), syscall.SIGTERM). Then the other pods take its shards over.
func Worker(stopping context.Context, option rueidis.ClientOption, pod string, ready *atomic.Bool,
	consume func(ctx context.Context, shard int, token int64) error) error {
	red, err := Connect(stopping, option, pod)
	if err != nil {
		return err
	}
	ready.Store(true)
	shards := red.Elections().Shards("queue", 16)
	working, end := context.WithCancel(context.WithoutCancel(stopping))
	context.AfterFunc(stopping, func() {
		ready.Store(false)
		draining, cancel := context.WithTimeout(working, 10*time.Second)
		defer cancel()
		_ = shards.Drain(draining, pod, time.Minute) // at its end, or without the server, Run ends all the same
		end()
	})
	err = shards.Run(working, pod, func(ctx context.Context, s *election.Shard) error {
		return consume(ctx, s.Index(), s.Token()) // returns soon after ctx has ended
	})
	end()
	if stopping.Err() != nil {
		err = nil // as it should
	}
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, red.Close(closing))
}

// Connect opens the client, and tries again while Redis is away.
func Connect(ctx context.Context, option rueidis.ClientOption, pod string) (*redlatch.Client, error) {
	for {
		red, err := redlatch.Open(ctx, option, redlatch.Options{Process: pod})
		if !errors.Is(err, redlatch.ErrUnavailable) || ctx.Err() != nil {
			return red, err
		}
		slog.Warn("waiting for Redis", "error", err)
		time.Sleep(time.Second)
	}
}

// Probes answers /livez while the process runs, and /readyz while it is ready. Neither asks Redis.
func Probes(ready *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	return mux
}

// Serve answers requests until stopping ends. Requests in flight keep their locks: the client is closed after them.
func Serve(stopping context.Context, red *redlatch.Client, server *http.Server, listener net.Listener,
	ready *atomic.Bool) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	ready.Store(true)
	var err error
	select {
	case err = <-failed:
	case <-stopping.Done():
		ready.Store(false)
		draining, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err = server.Shutdown(draining) // no more requests; returns when those in flight are answered
	}
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, red.Close(closing)) // ends the holds that are left, and waits for their Unlocks
}

// probe is what Kubernetes sees.
func probe(ready *atomic.Bool, path string) int {
	w := httptest.NewRecorder()
	Probes(ready).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code
}

// pods counts in which pod each shard is consumed, and fails if it is one in two.
type pods struct {
	t  *testing.T
	mu sync.Mutex
	by map[int]string
	n  map[string]int
}

func (p *pods) consume(pod string) func(context.Context, int, int64) error {
	return func(ctx context.Context, shard int, _ int64) error {
		p.mu.Lock()
		if other := p.by[shard]; other != "" {
			p.t.Errorf("%s and %s have shard %d", other, pod, shard)
		}
		p.by[shard] = pod
		p.n[pod]++
		p.mu.Unlock()
		<-ctx.Done()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.by, shard)
		p.n[pod]--
		return nil
	}
}

func (p *pods) has() (a, b int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n["a"], p.n["b"]
}

func TestWorker_PodStopped_HandsItsWorkOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		p := &pods{t: t, by: map[int]string{}, n: map[string]int{}}
		var ready [2]atomic.Bool
		over := make(chan error, 2)
		var stop [2]context.CancelFunc
		for i, pod := range []string{"a", "b"} {
			var stopping context.Context
			stopping, stop[i] = context.WithCancel(t.Context())
			require.Equal(t, http.StatusServiceUnavailable, probe(&ready[i], "/readyz"))
			go func() { over <- Worker(stopping, srv.Option(), pod, &ready[i], p.consume(pod)) }()
			time.Sleep(500 * time.Millisecond) // so that their heartbeats are not at one instant
		}
		time.Sleep(10 * time.Second)
		a, b := p.has()
		require.Equal(t, [2]int{8, 8}, [2]int{a, b})
		require.Equal(t, http.StatusOK, probe(&ready[0], "/readyz"))

		began := time.Now()
		stop[0]()
		require.NoError(t, <-over)
		require.Less(t, time.Since(began), 10*time.Second)
		require.Equal(t, http.StatusServiceUnavailable, probe(&ready[0], "/readyz"))
		require.Equal(t, http.StatusOK, probe(&ready[0], "/livez"))
		time.Sleep(time.Second)
		a, b = p.has()
		require.Equal(t, [2]int{0, 16}, [2]int{a, b}, "the other has all of it within a heartbeat")
		stop[1]()
		require.NoError(t, <-over)
	})
}

// A Redis that is away neither ends a pod nor holds its end up for longer than the page says.
func TestWorker_RedisAway_LivesOnAndStillStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		srv.Break(redlatchtest.Fault{Kind: redlatchtest.Unavailable, Match: func([]string) bool { return true }})
		p := &pods{t: t, by: map[int]string{}, n: map[string]int{}}
		var ready atomic.Bool
		stopping, stop := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- Worker(stopping, srv.Option(), "a", &ready, p.consume("a")) }()
		long := redistest.Sized[time.Duration](15, 60, 60) * time.Second
		time.Sleep(long)
		require.Equal(t, http.StatusOK, probe(&ready, "/livez"))
		require.Equal(t, http.StatusServiceUnavailable, probe(&ready, "/readyz"))
		srv.Heal()
		time.Sleep(10 * time.Second)
		a, _ := p.has()
		require.Equal(t, 16, a)

		srv.Break(redlatchtest.Fault{Kind: redlatchtest.Unavailable, Match: func([]string) bool { return true }})
		time.Sleep(long)
		a, _ = p.has()
		require.Equal(t, 0, a, "no shard is worked on without a lease")
		require.Equal(t, http.StatusOK, probe(&ready, "/readyz"))
		began := time.Now()
		stop()
		<-over
		require.LessOrEqual(t, time.Since(began), 21*time.Second)
		srv.Heal()
	})
}

// A request that is in flight when the pod is stopped keeps its lock and is answered; the lock is released after it.
func TestServe_Stopped_AnswersRequestsInFlight(t *testing.T) {
	srv := redlatchtest.New(t)
	red, err := redlatch.Open(t.Context(), srv.Option(), redlatch.Options{})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var ready atomic.Bool
	working, finish := make(chan struct{}), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := red.Locks().Reentrant("order:1").Do(r.Context(), func(ctx context.Context) error {
			close(working)
			<-finish
			return ctx.Err()
		})
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})}
	stopping, stop := context.WithCancel(t.Context())
	served, answered := make(chan error, 1), make(chan int, 1)
	go func() { served <- Serve(stopping, red, server, listener, &ready) }()
	go func() {
		answer, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			answered <- 0
			return
		}
		answer.Body.Close()
		answered <- answer.StatusCode
	}()
	<-working
	require.True(t, ready.Load())
	stop()
	require.Eventually(t, func() bool { return !ready.Load() }, 10*time.Second, time.Millisecond)
	close(finish)
	require.Equal(t, http.StatusOK, <-answered)
	require.NoError(t, <-served)
}

// The manifest of the page is YAML, and its grace is longer than what it has to cover.
func TestManifest_GracePeriod_IsLongEnough(t *testing.T) {
	page := redistest.NoError(os.ReadFile("../../../docs/kubernetes-and-managed.md"))(t)
	_, manifest, ok := strings.Cut(string(page), "```yaml\n")
	require.True(t, ok)
	manifest, _, _ = strings.Cut(manifest, "```")
	require.YAMLEq(t, manifest, manifest)
	seconds := func(of string) int {
		m := regexp.MustCompile(of + `[^0-9]*(\d+)`).FindStringSubmatch(manifest)
		require.Len(t, m, 2, of)
		n := redistest.NoError(strconv.Atoi(m[1]))(t)
		return n
	}
	const drain, shutdown, closing = 10, 20, 10 // of Worker and Serve, which both close
	require.Greater(t, seconds("terminationGracePeriodSeconds"), seconds("preStop")+max(drain, shutdown)+closing)
}
