package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/bench/internal/results"
	"github.com/redlatch/redlatch/rlock"
)

// queueName is what all wait for in the workloads of queues. What a worker wants of it is the name that Lock is called
// with: a permit or the lock, or one of these.
const (
	queueName  = "bench:queue"
	toRead     = "read"
	toWrite    = "write"
	writerSlot = 0 // the worker that writes
)

// farAway is added to each way in the second half of a queue's measurements. Loopback hides round trips.
const farAway = time.Millisecond

// queue is a workload in which several processes wait for one thing.
type queue struct {
	workers  int
	capacity int64 // who may be inside at one time
	hold     time.Duration
}

// queues has the workloads by name. Sizes are those that the library's own goals are stated for.
var queues = map[string]queue{
	permits: {workers: 32, capacity: 8, hold: 5 * time.Millisecond},
	sharing: {workers: 33, capacity: 1 << 20, hold: time.Millisecond},
	inOrder: {workers: 16, capacity: 1, hold: time.Millisecond},
}

// far is a queue's workload with the delay.
func far(workload string) string { return workload + ", 1 ms away" }

// gate is the load.Section of one process in a queue. It counts those inside in the shared memory; a writer counts for
// all.
type gate struct {
	*arena
	capacity int64
	writer   int64 // -1: none
}

func (g *gate) weight(worker int64) int64 {
	if worker == g.writer {
		return g.capacity
	}
	return 1
}

func (g *gate) Enter(worker int64) {
	inside := g.words[insideWord].Add(g.weight(worker))
	if g.phase() != measuring {
		return
	}
	if inside > g.capacity {
		g.words[overlapsWord].Add(1)
	}
	g.words[enteredWord].Add(1)
	if worker == g.writer {
		g.words[writtenWord].Add(1)
	}
	g.words[firstWindow+int(g.words[windowWord].Load())].Add(1)
}

func (g *gate) Leave(worker int64) { g.words[insideWord].Add(-g.weight(worker)) }

// queue has all workers of this process wait in line, until the next order, whatever it is.
func (w *workerProcess) queue(ctx context.Context, o order) (answer, error) {
	shared, err := openArena(o.Arena)
	if err != nil {
		return answer{}, err
	}
	defer shared.Close()
	q := queues[o.Mode]
	g := &gate{arena: shared, capacity: q.capacity, writer: -1}
	want := func(int) string { return "" }
	if o.Mode == sharing {
		g.writer = writerSlot
		want = func(i int) string {
			if o.First+int64(i) == writerSlot {
				return toWrite
			}
			return toRead
		}
	}
	run, cancel := context.WithCancel(ctx)
	done := make(chan load.Outcome, 1)
	go func() {
		done <- load.Run(run, load.Spec{
			Workers: o.Workers, First: o.First, Think: o.Think, Name: want, Acquire: w.locker.Lock, Section: g,
			Inside:    func(context.Context) error { time.Sleep(q.hold); return nil },
			Recording: func() bool { return shared.phase() == measuring },
		})
	}()
	var next order
	err = w.orders.Decode(&next)
	cancel()
	return answer{Outcome: <-done}, err
}

// queued measures a queue for one peer, behind a delay or not.
func (b *bench) queued(ctx context.Context, p Peer, round int, workload string,
	delay time.Duration) (row results.Row, err error) {
	q := queues[workload]
	name := workload
	if delay > 0 {
		name = far(workload)
	}
	row = results.Blank(name, b.cfg.Crowd, q.workers, p.Name, round)
	s, err := startRedis()
	if err != nil {
		return row, err
	}
	defer s.stop()
	setup := b.setup(s.addr, b.cfg.Lease)
	setup.Capacity, setup.CallTimeout = q.capacity, 5*time.Second // a stall of the machine is not an error
	if delay > 0 {
		stop, err := setup.away(delay)
		if err != nil {
			return row, err
		}
		defer stop()
	}
	shared, err := newArena(b.dir)
	if err != nil {
		return row, err
	}
	defer shared.Close()
	cs, err := startChildren(b.cfg.Crowd)
	if err != nil {
		return row, err
	}
	defer cs.end()
	if _, err := cs.all(func(int) order {
		return order{Do: "open", Duration: b.cfg.WarmUp, Peer: p.Name, Setup: setup}
	}); err != nil {
		return row, err
	}
	if err := b.lineUp(cs, shared, p, workload); err != nil {
		return row, err
	}
	time.Sleep(b.cfg.Warm)
	before, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	rates := windows(shared, b.cfg.Queued, b.cfg.Window)
	row.Seconds = lasted(rates)
	after, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	if row.Conns, err = s.connections(ctx); err != nil {
		return row, err
	}
	sum, _, err := cs.stop(&row, shared)
	if err != nil {
		return row, err
	}
	row.Overlaps = shared.words[overlapsWord].Load()
	if p.Etcd {
		row.Conns = results.NotTaken
	} else {
		perOp(&row, before, after)
	}
	row.Extra = inExtra(rates)
	if workload == sharing {
		written := float64(shared.words[writtenWord].Load())
		row.Extra += fmt.Sprintf(" reads_per_s=%.1f writes_per_s=%.1f", (float64(sum.Ops)-written)/row.Seconds,
			written/row.Seconds)
	}
	return row, nil
}

// lineUp spreads the workers over the processes, as evenly as it can be, and has them begin.
func (b *bench) lineUp(cs children, shared *arena, p Peer, workload string) error {
	first, workers := 0, queues[workload].workers
	for i, c := range cs {
		n := (workers*(i+1))/len(cs) - first
		if err := c.tell(order{Do: "queue", Mode: workload, Peer: p.Name, Workers: n, First: int64(first),
			Think: b.cfg.Think, Arena: shared.path}); err != nil {
			return err
		}
		first += n
	}
	return nil
}

// away has everything that the peer is opened with lie behind a delay.
func (s *Setup) away(by time.Duration) (stop func(), err error) {
	through, stop, err := load.Delay(s.Redis, by)
	if err != nil {
		return nil, err
	}
	s.Redis = through
	if scheme, at, ok := strings.Cut(s.Etcd, "://"); ok {
		through, end, err := load.Delay(at, by)
		if err != nil {
			stop()
			return nil, err
		}
		redis := stop
		s.Etcd, stop = scheme+"://"+through, func() { redis(); end() }
	}
	return stop, nil
}

// window is a part of a measurement, and how often something was acquired in it.
type window struct {
	seconds float64
	ops     int64
}

func (w window) rate() float64 { return float64(w.ops) / w.seconds }

// windows lets the measurement last, one window after the other.
func windows(shared *arena, lasts, each time.Duration) []window {
	n := min(max(int(lasts/each), 1), arenaWords-firstWindow-1)
	all := make([]window, n)
	shared.setPhase(measuring)
	for i := range all {
		shared.words[windowWord].Store(int64(i))
		start := time.Now()
		time.Sleep(each)
		all[i].seconds = time.Since(start).Seconds()
	}
	shared.setPhase(over)
	for i := range all {
		all[i].ops = shared.words[firstWindow+i].Load()
	}
	return all
}

// lasted is how long all of them were, in seconds.
func lasted(all []window) (sum float64) {
	for _, w := range all {
		sum += w.seconds
	}
	return sum
}

// inExtra is what a row says of them.
func inExtra(all []window) string {
	return fmt.Sprintf("worst_window=%.3f empty_windows=%d windows=%d", slowest(all), empty(all), len(all))
}

// slowest is the rate of the slowest window as a share of the median one.
func slowest(all []window) float64 {
	rates := make([]float64, len(all))
	for i, w := range all {
		rates[i] = w.rate()
	}
	return load.Slowest(rates)
}

func empty(all []window) (n int) {
	for _, w := range all {
		if w.ops == 0 {
			n++
		}
	}
	return n
}

// The peers of the queues. go-redisson has no semaphore, and none for readers and writers; we found no other Go library
// with either on Redis that is still kept up. So the peers are Redisson, and what is written by hand.

var queuePeers = []Peer{
	ourQueue("rsemaphore.Semaphore", permits, "leased permits, defaults",
		func(l *redlatchLocker, s Setup) func(string) load.Acquire {
			return always(ofPermits(l.semaphores.Semaphore(queueName, int(s.Capacity))))
		}),
	ourQueue("rsemaphore.CountingSemaphore", permits, "permits without a lease",
		func(l *redlatchLocker, s Setup) func(string) load.Acquire {
			sem := l.semaphores.CountingSemaphore(queueName)
			return always(func(ctx context.Context, _ string) (load.Release, error) {
				if l.once.CompareAndSwap(false, true) {
					if _, err := sem.TrySetPermits(ctx, int(s.Capacity), 0); err != nil {
						return nil, err
					}
				}
				if err := sem.Acquire(ctx, 1); err != nil {
					return nil, err
				}
				return func(ctx context.Context) error { return sem.Release(ctx, 1) }, nil
			})
		}),
	ourQueue("rlock.ReadWrite", sharing, "defaults", func(l *redlatchLocker, _ Setup) func(string) load.Acquire {
		rw := l.client.ReadWrite(queueName)
		return func(want string) load.Acquire {
			if want == toWrite {
				return ofLock(rw.Write())
			}
			return ofLock(rw.Read())
		}
	}),
	ourQueue("rlock.Fair", inOrder, "Redisson's order among all waiters",
		func(l *redlatchLocker, _ Setup) func(string) load.Acquire {
			return always(ofLock(l.client.Fair(queueName)))
		}),
	ourQueue("rlock.Reentrant", inOrder, "order among processes",
		func(l *redlatchLocker, _ Setup) func(string) load.Acquire {
			return always(ofLock(l.client.Reentrant(queueName)))
		}),
	zsetPeer(10 * time.Millisecond), zsetPeer(time.Millisecond),
	scriptPeer(10 * time.Millisecond),
	javaQueue("RPermitExpirableSemaphore", permits), javaQueue("RSemaphore", permits),
	javaQueue("RReadWriteLock", sharing), javaQueue("RFairLock", inOrder),
}

func always(a load.Acquire) func(string) load.Acquire { return func(string) load.Acquire { return a } }

func ofLock(l *rlock.Lock) load.Acquire {
	return func(ctx context.Context, _ string) (load.Release, error) {
		h, err := l.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	}
}

// queueLocker is a Locker whose names say what is wanted of the queue.
type queueLocker struct {
	of     func(want string) load.Acquire
	close  func()
	within func(ctx context.Context, wait time.Duration) (load.Release, error) // nil: it cannot be given how long to wait
}

// LockWithin implements waiter, whatever is wanted.
func (l *queueLocker) LockWithin(ctx context.Context, _ string, wait time.Duration) (load.Release, error) {
	if l.within == nil {
		return nil, errors.New("this peer cannot be given how long to wait")
	}
	return l.within(ctx, wait)
}

func (l *queueLocker) Lock(ctx context.Context, want string) (load.Release, error) {
	return l.of(want)(ctx, want)
}

func (l *queueLocker) Close() { l.close() }

func ourQueue(name, workload, how string, of func(l *redlatchLocker, s Setup) func(string) load.Acquire) Peer {
	return Peer{Name: name, Module: redlatchPeer.Module, How: how, Wakes: "push", Queue: workload,
		Open: func(_ context.Context, s Setup) (Locker, error) {
			l, err := openSemaphores(rueidis.ClientOption{InitAddress: []string{s.Redis}}, s)
			if err != nil {
				return nil, err
			}
			q := &queueLocker{of: of(l, s), close: l.Close}
			switch name {
			case "rlock.Fair":
				fair := l.client.Fair(queueName)
				q.within = func(ctx context.Context, wait time.Duration) (load.Release, error) {
					h, err := fair.TryLock(ctx, wait, 0)
					if err != nil {
						return nil, err
					}
					return h.Unlock, nil
				}
			case "rsemaphore.Semaphore":
				s := l.semaphores.Semaphore(queueName, int(s.Capacity))
				q.within = func(ctx context.Context, wait time.Duration) (load.Release, error) {
					p, err := s.TryAcquire(ctx, 1, wait, 0)
					if err != nil {
						return nil, err
					}
					return p.Release, nil
				}
			}
			return q, nil
		}}
}

// byHand is a client of a script that is asked again and again.
type byHand struct {
	rueidis.Client
	id string
	n  atomic.Int64
}

func openByHand(ctx context.Context, s Setup) (*byHand, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Redis}})
	if err != nil {
		return nil, err
	}
	id, err := c.Do(ctx, c.B().ClientId().Build()).AsInt64()
	if err != nil {
		c.Close()
		return nil, err
	}
	return &byHand{Client: c, id: strconv.FormatInt(id, 10)}, nil
}

func (c *byHand) owner() string { return c.id + ":" + strconv.FormatInt(c.n.Add(1), 10) }

// until asks until the script says 1, with pauses around poll at random.
func (c *byHand) until(ctx context.Context, poll time.Duration, s *rueidis.Lua, keys, args []string) error {
	for {
		if n, err := s.Exec(ctx, c.Client, keys, args).AsInt64(); err != nil || n == 1 {
			return err
		}
		t := time.NewTimer(poll/2 + rand.N(poll))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

var (
	zsetTake = rueidis.NewLuaScript(`local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return 1
end
return 0`)
	zsetGive = rueidis.NewLuaScript("return redis.call('ZREM', KEYS[1], ARGV[1])")

	readTake = rueidis.NewLuaScript(`if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('INCR', KEYS[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1`)
	readGive  = rueidis.NewLuaScript("if redis.call('DECR', KEYS[2]) <= 0 then redis.call('DEL', KEYS[2]) end return 1")
	writeTake = rueidis.NewLuaScript(`if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0`)
	writeGive = rueidis.NewLuaScript("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) " +
		"end return 0")
)

// gave makes an error of a release that found nothing.
func gave(r rueidis.RedisResult) error {
	n, err := r.AsInt64()
	if err == nil && n != 1 {
		err = fmt.Errorf("what is released was not ours any more")
	}
	return err
}

// zsetPeer is the semaphore that is usually written by hand: holders in a sorted set by the end of their lease, and a
// waiter that asks again.
func zsetPeer(poll time.Duration) Peer {
	return Peer{
		Name: fmt.Sprintf("ZSET, %d ms", poll.Milliseconds()), Module: "github.com/redis/rueidis", Wakes: "poll",
		Queue: permits,
		How: fmt.Sprintf("one script removes the expired, counts and adds; a waiter asks again after %v, half to one and a "+
			"half of that", poll),
		Open: func(ctx context.Context, s Setup) (Locker, error) {
			c, err := openByHand(ctx, s)
			if err != nil {
				return nil, err
			}
			keys, capacity, lease := []string{queueName}, strconv.FormatInt(s.Capacity, 10),
				strconv.FormatInt(s.Lease.Milliseconds(), 10)
			return &queueLocker{of: always(func(ctx context.Context, _ string) (load.Release, error) {
				owner := c.owner()
				if err := c.until(ctx, poll, zsetTake, keys, []string{owner, capacity, lease}); err != nil {
					return nil, err
				}
				return func(ctx context.Context) error { return gave(zsetGive.Exec(ctx, c.Client, keys, []string{owner})) }, nil
			}), close: c.Close}, nil
		},
	}
}

// scriptPeer is a lock for readers and writers as it is written by hand: a count of readers and a key of the writer.
func scriptPeer(poll time.Duration) Peer {
	return Peer{
		Name: fmt.Sprintf("count and key, %d ms", poll.Milliseconds()), Module: "github.com/redis/rueidis", Wakes: "poll",
		Queue: sharing,
		How: fmt.Sprintf("a count of readers and the writer's key, in scripts; a waiter asks again after %v, half to one "+
			"and a half of that; a dead reader's count stays", poll),
		Open: func(ctx context.Context, s Setup) (Locker, error) {
			c, err := openByHand(ctx, s)
			if err != nil {
				return nil, err
			}
			keys, lease := []string{queueName + ":w", queueName + ":r"}, strconv.FormatInt(s.Lease.Milliseconds(), 10)
			return &queueLocker{of: always(func(ctx context.Context, want string) (load.Release, error) {
				take, give := readTake, readGive
				if want == toWrite {
					take, give = writeTake, writeGive
				}
				args := []string{c.owner(), lease}
				if err := c.until(ctx, poll, take, keys, args); err != nil {
					return nil, err
				}
				return func(ctx context.Context) error { return gave(give.Exec(ctx, c.Client, keys, args)) }, nil
			}), close: c.Close}, nil
		},
	}
}

// javaQueue is one of Redisson's objects, through the driver.
func javaQueue(object, workload string) Peer {
	return Peer{
		Name: object, Module: redissonPeer.Module, Wakes: "push", Queue: workload, Optional: true,
		How: "Redisson's, a JVM for each process, warmed up for 6 s; every call goes to the JVM over a pipe and back",
		Open: func(ctx context.Context, s Setup) (Locker, error) {
			l, err := openRedisson(ctx, s, true)
			if err != nil {
				return nil, err
			}
			java := l.(*redissonLocker)
			if workload == permits {
				verb := "permit.set"
				if object == "RSemaphore" {
					verb = "sem.set"
				}
				if _, err := java.jvm.Do(ctx, "opening", "c", verb, queueName, s.Capacity); err != nil {
					java.Close()
					return nil, err
				}
			}
			q := &queueLocker{of: always(func(ctx context.Context, want string) (load.Release, error) {
				switch object {
				case "RPermitExpirableSemaphore":
					return java.call(ctx, "permit.acquire", []any{queueName, s.Lease.Milliseconds()}, "permit.release",
						func(id string) []any { return []any{queueName, id} })
				case "RSemaphore":
					return java.call(ctx, "sem.acquire", []any{queueName, 1}, "sem.release", func(string) []any {
						return []any{queueName, 1}
					})
				case "RFairLock":
					want = "fair"
				}
				return java.call(ctx, "lock", []any{want, queueName, -1}, "unlock", func(string) []any {
					return []any{want, queueName}
				})
			}), close: java.Close}
			// The first calls of a JVM are slow. A measurement can be over before the first of them is back.
			release, err := q.Lock(ctx, toWrite)
			if err == nil {
				err = release(ctx)
			}
			if err != nil {
				q.Close()
				return nil, err
			}
			return q, nil
		},
	}
}
