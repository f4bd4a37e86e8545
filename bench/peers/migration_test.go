package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// The steps of docs/migration.md. A service runs as three processes of two callers each. It is replaced process by
// process, as in a rolling update, and back, while all of them work. (A process is a client of its own here; the other
// libraries cannot tell.)

// acquire has its caller be alone, or one of few, until release.
type acquire func(ctx context.Context) (load.Release, error)

// version is what one release of the service does to be alone.
type version struct {
	name string
	open func(t *testing.T, addr string) (acquire, func())
}

// peerVersion is a release that uses another library, whose lock has that name.
func peerVersion(name string, peer Peer, lock string) version {
	return version{name, func(t *testing.T, addr string) (acquire, func()) {
		l, err := peer.Open(context.Background(), Setup{Redis: addr, Lease: 20 * time.Second})
		require.NoError(t, err)
		return func(ctx context.Context) (load.Release, error) { return l.Lock(ctx, lock) }, l.Close
	}}
}

// ourVersion is a release that uses this library, with the PollCap that docs/migration.md advises.
func ourVersion(name string, of func(l *redlatchLocker) acquire) version {
	return version{name, func(t *testing.T, addr string) (acquire, func()) {
		hub, err := pubsub.Dial(context.Background(), rueidis.ClientOption{InitAddress: []string{addr}}, pubsub.Options{})
		require.NoError(t, err)
		l := &redlatchLocker{hub: hub}
		l.client, err = rlock.New(hub, rlock.Options{WatchdogTimeout: 20 * time.Second, PollCap: 100 * time.Millisecond})
		require.NoError(t, err)
		l.semaphores, err = rsemaphore.New(hub, rsemaphore.Options{WatchdogTimeout: 20 * time.Second})
		require.NoError(t, err)
		return of(l), l.Close
	}}
}

func lockOf(l *rlock.Lock) acquire {
	return func(ctx context.Context) (load.Release, error) { return ofLock(l)(ctx, "") }
}

// holding is a release that holds all these locks of ours.
func holding(name string, of ...func(c *rlock.Client) *rlock.Lock) version {
	return ourVersion(name, func(l *redlatchLocker) acquire {
		all := make([]*rlock.Lock, len(of))
		for i := range of {
			all[i] = of[i](l.client)
		}
		if len(all) == 1 {
			return lockOf(all[0])
		}
		m, err := rlock.Multi(all...)
		if err != nil {
			panic(err)
		}
		return lockOf(m)
	})
}

// both has a permit of two: the release between one that has the first and one that has the second.
func both(first, second version) version {
	return version{first.name + " and " + second.name, func(t *testing.T, addr string) (acquire, func()) {
		a, endA := first.open(t, addr)
		b, endB := second.open(t, addr)
		take := func(ctx context.Context) (load.Release, error) {
			releaseA, err := a(ctx)
			if err != nil {
				return nil, err
			}
			releaseB, err := b(ctx)
			if err != nil {
				return nil, errors.Join(err, releaseA(context.Background()))
			}
			return func(ctx context.Context) error { return errors.Join(releaseB(ctx), releaseA(ctx)) }, nil
		}
		return take, func() { endA(); endB() }
	}}
}

// service is what all processes of all versions work on.
type service struct {
	t         *testing.T
	addr      string
	redis     rueidis.Client
	capacity  int64
	works     atomic.Int64 // at this moment
	most      atomic.Int64 // of works
	done      atomic.Int64
	mu        sync.Mutex
	failures  []string
	processes []*process
}

// process is one of the service.
type process struct {
	version string
	jobs    atomic.Int64
	stop    context.CancelFunc // it takes no more jobs
	ended   sync.WaitGroup
	end     func()
}

func (s *service) start(v version) *process {
	take, end := v.open(s.t, s.addr)
	ctx, stop := context.WithCancel(context.Background())
	p := &process{version: v.name, stop: stop, end: end}
	for range 2 {
		p.ended.Go(func() {
			for ctx.Err() == nil {
				if err := s.job(take); err != nil {
					s.mu.Lock()
					s.failures = append(s.failures, v.name+": "+err.Error())
					s.mu.Unlock()
					return
				}
				p.jobs.Add(1)
				time.Sleep(rand.N(8 * time.Millisecond))
			}
		})
	}
	return p
}

// job reads a number, thinks, and writes the next: two at a time would lose one of their jobs.
func (s *service) job(take acquire) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	release, err := s.patiently(ctx, take)
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	n := s.works.Add(1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	if s.capacity == 1 {
		seen, err := s.redis.Do(ctx, s.redis.B().Get().Key("jobs done").Build()).AsInt64()
		if err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
		time.Sleep(time.Millisecond)
		set := s.redis.B().Set().Key("jobs done").Value(strconv.FormatInt(seen+1, 10)).Build()
		if err := s.redis.Do(ctx, set).Error(); err != nil {
			return err
		}
	} else {
		time.Sleep(2 * time.Millisecond)
	}
	s.done.Add(1)
	s.works.Add(-1)
	if err := release(ctx); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// patiently acquires, by calls that give up after a second, as those of a service do: a waiter of rueidislock's may
// miss a release, and has no timer. What is acquired lasts until ctx ends: a hold of rueidislock's ends with the
// context of its acquisition.
func (s *service) patiently(ctx context.Context, take acquire) (load.Release, error) {
	for {
		attempt, cancel := context.WithCancel(ctx)
		patience := time.AfterFunc(time.Second, cancel)
		release, err := take(attempt)
		switch inTime := patience.Stop(); {
		case err == nil && inTime:
			return func(ctx context.Context) error { defer cancel(); return release(ctx) }, nil
		case err == nil:
			_ = release(ctx) // it has ended, perhaps
		case ctx.Err() != nil || inTime:
			cancel()
			return nil, err
		}
		cancel()
	}
}

// progress waits until every process has done some jobs more.
func (s *service) progress(what string) {
	s.t.Helper()
	before := make([]int64, len(s.processes))
	for i, p := range s.processes {
		before[i] = p.jobs.Load()
	}
	redistest.Eventually(s.t, time.Minute, what+": every process makes progress", func() bool {
		s.mu.Lock()
		failed := len(s.failures) > 0
		s.mu.Unlock()
		for i, p := range s.processes {
			if p.jobs.Load() < before[i]+2 && !failed {
				return false
			}
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(s.t, s.failures, what)
}

// replace has the i-th process be of another version.
func (s *service) replace(i int, v version) {
	p := s.processes[i]
	p.stop()
	p.ended.Wait()
	p.end()
	s.processes[i] = s.start(v)
}

// roll moves a service through the releases, one after the other, and back.
func roll(t *testing.T, capacity int64, prepare func(rueidis.Client), releases ...version) {
	redistest.NeedServer(t)
	r, err := startRedis()
	require.NoError(t, err)
	defer r.stop()
	if prepare != nil {
		prepare(r.client)
	}
	s := &service{t: t, addr: r.addr, redis: r.client, capacity: capacity}
	for range 3 {
		s.processes = append(s.processes, s.start(releases[0]))
	}
	s.progress("all are " + releases[0].name)
	order := releases[1:]
	for i := len(releases) - 2; i >= 0; i-- {
		order = append(order[:len(order):len(order)], releases[i])
	}
	for _, v := range order {
		for i := range s.processes {
			began := time.Now()
			s.replace(i, v)
			s.progress(fmt.Sprintf("%d of 3 are %s", i+1, v.name))
			t.Logf("%d of 3 are %s: %v", i+1, v.name, time.Since(began).Round(time.Millisecond))
		}
	}
	for _, p := range s.processes {
		p.stop()
		p.ended.Wait()
		p.end()
	}
	require.LessOrEqual(t, s.most.Load(), capacity, "at a time")
	if capacity == 1 {
		n, err := r.client.Do(context.Background(), r.client.B().Get().Key("jobs done").Build()).AsInt64()
		require.NoError(t, err)
		require.Equal(t, s.done.Load(), n, "no job is lost")
	}
	t.Logf("%d jobs", s.done.Load())
}

func TestAServiceMovesWithoutAStop(t *testing.T) {
	redsync := peerVersion("redsync", redsyncGoRedis, "order:1")
	redislock := peerVersion("redislock", redislock1ms, "order:1")
	single := peerVersion("rueidislock, one key", rueidislockTuned, "order:1")
	several := peerVersion("rueidislock, three keys", rueidislockDefault, "order:1")
	type of = func(c *rlock.Client) *rlock.Lock
	plainOf := func(name string) of { return func(c *rlock.Client) *rlock.Lock { return c.Plain(name) } }
	reentrantOf := func(name string) of { return func(c *rlock.Client) *rlock.Lock { return c.Reentrant(name) } }
	fenced := holding("Fenced", func(c *rlock.Client) *rlock.Lock { return c.Fenced("order:1") })
	plain, reentrant := holding("Plain", plainOf("order:1")), holding("Reentrant", reentrantOf("order:1"))
	old0, old1 := plainOf("rueidislock:0:order:1"), plainOf("rueidislock:1:order:1")
	oldName := holding("Plain of one key", old0)
	bothNames := holding("Plain of one key and Reentrant", old0, reentrantOf("order:1"))
	majorityAndName := holding("Plain of two keys and Reentrant", old0, old1, reentrantOf("order:1"))
	sameName := holding("Reentrant of one key", reentrantOf("rueidislock:0:order:1"))
	for name, releases := range map[string][]version{
		"redsync, Plain, Reentrant":               {redsync, plain, reentrant},
		"redsync, Reentrant":                      {redsync, reentrant},
		"redislock, Plain, Reentrant":             {redislock, plain, reentrant},
		"rueidislock with one key, another name":  {single, bothNames, reentrant},
		"rueidislock with three keys":             {several, majorityAndName, reentrant},
		"rueidislock with one key, the same name": {single, oldName, sameName},
		"Plain, Fenced":                           {plain, fenced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			roll(t, 1, nil, releases...)
		})
	}
}

// TestAServiceMovesFromACountingSemaphore: the two kinds use one key in ways that cannot be told apart, so they have
// two names, and one release has a permit of both.
func TestAServiceMovesFromACountingSemaphore(t *testing.T) {
	counting := ourVersion("CountingSemaphore", func(l *redlatchLocker) acquire {
		s := l.semaphores.CountingSemaphore("imports")
		return func(ctx context.Context) (load.Release, error) {
			if err := s.Acquire(ctx, 1); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return s.Release(ctx, 1) }, nil
		}
	})
	leased := ourVersion("Semaphore", func(l *redlatchLocker) acquire {
		s := l.semaphores.Semaphore("imports:leased", 2)
		return func(ctx context.Context) (load.Release, error) {
			p, err := s.Acquire(ctx, 1)
			if err != nil {
				return nil, err
			}
			return p.Release, nil
		}
	})
	prepare := func(c rueidis.Client) {
		require.NoError(t, c.Do(context.Background(), c.B().Set().Key("imports").Value("2").Build()).Error())
	}
	roll(t, 2, prepare, counting, both(counting, leased), leased)
}

// TestWhatAPeerSaysOfALockThatIsAHash: which of the libraries wait for one, and which cannot.
func TestWhatAPeerSaysOfALockThatIsAHash(t *testing.T) {
	redistest.NeedServer(t)
	for _, c := range []struct {
		peer  Peer
		key   string // of the lock that the peer calls order:1
		waits bool
	}{
		{redsyncGoRedis, "order:1", true},
		{redsyncRueidis, "order:1", true},
		{redislock1ms, "order:1", false},
		{rueidislockTuned, "rueidislock:0:order:1", true},
	} {
		t.Run(c.peer.Name, func(t *testing.T) {
			ctx, theirs, ours := withPeer(t, c.peer)
			h, err := ours.client.Reentrant(c.key).Lock(ctx)
			require.NoError(t, err)
			got := make(chan error, 1)
			go func() {
				release, err := theirs.Lock(ctx, "order:1")
				if err == nil {
					err = release(ctx)
				}
				got <- err
			}()
			if !c.waits {
				err := <-got
				t.Logf("at once: %v", err)
				require.Error(t, err)
				require.NoError(t, h.Unlock(ctx))
				return
			}
			select {
			case err := <-got:
				require.Fail(t, "it did not wait", "%v", err)
			case <-time.After(500 * time.Millisecond):
			}
			require.NoError(t, h.Err(), "and it left our hold alone")
			require.NoError(t, h.Unlock(ctx))
			require.NoError(t, <-got)
		})
	}
}

// TestAHoldThatEndedDuringAMigrationHurtsNobody: the old process's key expires while it works, and a process of the new
// version takes the lock. The old one's release, which comes late, must not touch it.
func TestAHoldThatEndedDuringAMigrationHurtsNobody(t *testing.T) {
	redistest.NeedServer(t)
	for _, peer := range []Peer{redsyncGoRedis, redislock1ms} {
		t.Run(peer.Name, func(t *testing.T) {
			s, err := startRedis()
			require.NoError(t, err)
			defer s.stop()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			theirs, err := peer.Open(ctx, Setup{Redis: s.addr, Lease: 300 * time.Millisecond})
			require.NoError(t, err)
			defer theirs.Close()
			ours, err := openRedlatch(rueidis.ClientOption{InitAddress: []string{s.addr}}, Setup{Lease: 20 * time.Second})
			require.NoError(t, err)
			defer ours.Close()
			release, err := theirs.Lock(ctx, "order:1")
			require.NoError(t, err)
			began := time.Now()
			h, err := ours.client.Reentrant("order:1").Lock(ctx)
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
			err = release(ctx)
			require.Error(t, err, "it says that it has lost the lock")
			t.Logf("the late release: %v", err)
			require.NoError(t, h.Err())
			_, err = ours.client.Plain("order:1").TryLock(ctx, 0, 0)
			var held *rlock.NotAcquiredError
			require.ErrorAs(t, err, &held)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			require.Equal(t, "hash", held.Kind)
			require.NoError(t, h.Unlock(ctx))
		})
	}
}
