package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/bench/internal/results"
)

// How a caller of the workload "impatient" gives up.
const (
	byDeadline = "deadline" // its context has one
	byCancel   = "cancel"   // its context is cancelled
	byWaitTime = "waitTime" // it said how long it would wait; its context has no end
)

const (
	impatientCallers = 64
	impatientHold    = 100 * time.Microsecond
	// longestIdle is how long one of our locks may be free while callers want it.
	longestIdle = 100 * time.Millisecond
)

// givesUp lists the peers whose wait can be ended, and the ways. ReadWrite is measured in one way, to keep the run
// short. A lock for readers and writers is wanted to write, and a semaphore has one permit.
var givesUp = map[string][]string{
	redlatchPeer.Name:      {byDeadline, byCancel, byWaitTime},
	"rlock.Fair":           {byDeadline, byCancel, byWaitTime},
	"rlock.ReadWrite":      {byDeadline},
	"rsemaphore.Semaphore": {byDeadline, byCancel, byWaitTime},
	"ZSET, 1 ms":           {byDeadline, byCancel},
	rueidislockTuned.Name:  {byDeadline, byCancel},
	redislock1ms.Name:      {byDeadline, byCancel},
	redsyncGoRedis.Name:    {byDeadline, byCancel},
}

// waiter is a Locker that can be given how long to wait.
type waiter interface {
	LockWithin(ctx context.Context, name string, wait time.Duration) (load.Release, error)
}

func (l *redlatchLocker) LockWithin(ctx context.Context, name string, wait time.Duration) (load.Release, error) {
	hold, err := l.client.Reentrant(name).TryLock(ctx, wait, 0)
	if err != nil {
		return nil, err
	}
	return hold.Unlock, nil
}

// patient acquires for a caller that gives up after wait.
func patient(ctx context.Context, l Locker, way, name string, wait time.Duration) (load.Release, error) {
	switch way {
	case byWaitTime:
		w, ok := l.(waiter)
		if !ok {
			return nil, fmt.Errorf("%T cannot be given how long to wait", l)
		}
		return w.LockWithin(ctx, name, wait)
	case byCancel:
		c, cancel := context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(wait, cancel).Stop()
		return lockUntil(c, l, name)
	}
	c, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return lockUntil(c, l, name)
}

// lockUntil is Lock for a hold that outlives ctx. A hold of rueidislock ends with the context it was acquired with, and
// so would be released under its holder: it gets a context of its own, which ctx ends only while it waits.
func lockUntil(ctx context.Context, l Locker, name string) (load.Release, error) {
	if _, bound := l.(rueidislockLocker); !bound {
		return l.Lock(ctx, name)
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	release, err := l.Lock(own, name)
	if err == nil && !stop() { // it was acquired, and is being released
		err = errors.Join(ctx.Err(), release(own))
	}
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer cancel()
		return release(ctx)
	}, nil
}

// idling is the load.Section that also measures how long no worker held the lock: from one Leave to the next Enter,
// whichever processes they are in. A holder that the machine delays is not idleness.
type idling struct {
	*section
	now func() int64
}

func (i *idling) Enter(worker int64) {
	if i.phase() == measuring {
		i.idleUntil(i.now())
	}
	i.section.Enter(worker)
}

func (i *idling) Leave(worker int64) {
	i.section.Leave(worker)
	i.words[leftWord].Store(i.now())
}

// idleUntil counts the time since the last Leave.
func (a *arena) idleUntil(now int64) {
	gap := now - a.words[leftWord].Load()
	for {
		longest := a.words[idleWord].Load()
		if gap <= longest || a.words[idleWord].CompareAndSwap(longest, gap) {
			return
		}
	}
}

// newClock returns a clock that processes started about now share. It is read from the wall clock once and goes on with
// the monotonic one.
func newClock() func() int64 {
	start := time.Now()
	return func() int64 { return start.UnixNano() + int64(time.Since(start)) }
}

// giveUp has all workers of this process want one lock, each for o.Patience, half to one and a half of that, and then
// again at once, until the next order, whatever it is. Count is how often they gave up while it counts; a wait in the
// outcome lasts until the worker gets the lock, however often it asked.
func (w *workerProcess) giveUp(ctx context.Context, o order) (answer, error) {
	shared, err := openArena(o.Arena)
	if err != nil {
		return answer{}, err
	}
	defer shared.Close()
	var gaveUp atomic.Int64
	acquire := func(run context.Context, name string) (load.Release, error) {
		for {
			wait := o.Patience/2 + rand.N(o.Patience)
			asked := time.Now()
			release, err := patient(run, w.locker, o.Mode, name, wait)
			if err == nil || run.Err() != nil {
				return release, err
			}
			gave := errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded) ||
				errors.Is(err, context.Canceled)
			if time.Since(asked) < wait && !gave {
				return nil, err // it failed
			}
			if shared.phase() == measuring {
				gaveUp.Add(1)
			}
		}
	}
	run, cancel := context.WithCancel(ctx)
	done := make(chan load.Outcome, 1)
	go func() {
		done <- load.Run(run, load.Spec{
			Workers: o.Workers, First: o.First, Think: o.Think,
			Name:    func(int) string { return toWrite },
			Acquire: acquire,
			Inside: func(context.Context) error { // to sleep would last a millisecond
				for start := time.Now(); time.Since(start) < impatientHold; { //nolint:revive // it keeps the processor
				}
				return nil
			},
			Section:   &idling{newSection(shared, o.First, o.Workers), newClock()},
			Recording: func() bool { return shared.phase() == measuring },
		})
	}()
	var next order
	err = w.orders.Decode(&next)
	cancel()
	return answer{Outcome: <-done, Count: gaveUp.Load()}, err
}

// impatientWith is the workload's name in a row.
func impatientWith(patience time.Duration, way string) string {
	return fmt.Sprintf("%s, %v, %s", impatient, patience, way)
}

// impatientSteps are those of a round.
func (b *bench) impatientSteps(round int, peers []Peer) []step {
	var steps []step
	for _, each := range b.cfg.Patience {
		for _, way := range []string{byDeadline, byCancel, byWaitTime} {
			for _, p := range peers {
				if !slices.Contains(givesUp[p.Name], way) {
					continue
				}
				steps = append(steps, step{
					round: round, workload: impatient, what: fmt.Sprintf("%v, %s", each, way), peer: p.Name,
					takes: setupTakes + b.cfg.Warm + b.cfg.Impatient,
					run: func(ctx context.Context) (results.Row, error) {
						return b.impatient(ctx, p, round, each, way)
					},
				})
			}
		}
	}
	return steps
}

// impatient measures callers who give up and ask again.
func (b *bench) impatient(ctx context.Context, p Peer, round int, each time.Duration,
	way string) (row results.Row, err error) {
	row = results.Blank(impatientWith(each, way), b.cfg.Crowd, impatientCallers, p.Name, round)
	s, err := startRedis()
	if err != nil {
		return row, err
	}
	defer s.stop()
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
	setup := b.setup(s.addr, b.cfg.Lease)
	setup.Capacity = 1
	if _, err := cs.all(func(int) order { return order{Do: "open", Peer: p.Name, Setup: setup} }); err != nil {
		return row, err
	}
	first := 0
	for i, c := range cs {
		n := impatientCallers*(i+1)/len(cs) - first
		if err := c.tell(order{Do: "give up", Mode: way, Patience: each, Workers: n, First: int64(first), Think: b.cfg.Think,
			Arena: shared.path}); err != nil {
			return row, err
		}
		first += n
	}
	time.Sleep(b.cfg.Warm)
	before, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	late := lateness()
	now := newClock()
	shared.words[leftWord].Store(now())
	row.Seconds = lasted(windows(shared, b.cfg.Impatient, b.cfg.Impatient))
	if shared.words[insideWord].Load() == 0 {
		shared.idleUntil(now())
	}
	idle := time.Duration(shared.words[idleWord].Load())
	stall := late()
	after, err := s.usage(ctx)
	if err != nil {
		return row, err
	}
	_, answers, err := cs.stop(&row, shared)
	if err != nil {
		return row, err
	}
	row.Overlaps, row.Lost = shared.broken()
	perOp(&row, before, after)
	gaveUp := int64(0)
	for _, a := range answers {
		gaveUp += a.Count
	}
	row.Extra = fmt.Sprintf("idle_ms=%.1f gave_up_per_s=%.0f late_ms=%.1f", millis(idle), float64(gaveUp)/row.Seconds,
		millis(stall))
	return row, nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// lateness has a goroutine sleep for a millisecond again and again, until the function it returns is called, which says
// how late the latest return was: what the machine did to a process that only sleeps.
func lateness() func() time.Duration {
	stop, worst := make(chan struct{}), make(chan time.Duration)
	go func() {
		var late time.Duration
		for {
			start := time.Now()
			select {
			case <-stop:
				worst <- late
				return
			case <-time.After(time.Millisecond):
				late = max(late, time.Since(start)-time.Millisecond)
			}
		}
	}()
	return func() time.Duration { close(stop); return <-worst }
}

// giverUp is what all rounds say of a peer in one setting.
type giverUp struct {
	peer              string
	rate, gaveUp, p99 float64 // medians
	idle              float64 // median, in milliseconds
	worst, late       float64 // the longest idle time of all rounds, and in that round a sleeper was so late
	failed            int
}

// impatientSetting is what was measured in one setting, by peer, in the order of the rows.
type impatientSetting struct {
	workload string
	peers    []string
	rows     map[string][]results.Row
}

func impatientSettings(rows []results.Row) (all []*impatientSetting) {
	for _, r := range rows {
		if !strings.HasPrefix(r.Workload, impatient+", ") {
			continue
		}
		i := slices.IndexFunc(all, func(s *impatientSetting) bool { return s.workload == r.Workload })
		if i < 0 {
			i = len(all)
			all = append(all, &impatientSetting{workload: r.Workload, rows: map[string][]results.Row{}})
		}
		s := all[i]
		if s.rows[r.Peer] == nil {
			s.peers = append(s.peers, r.Peer)
		}
		s.rows[r.Peer] = append(s.rows[r.Peer], r)
	}
	return all
}

// impatience prints the table of the workload, and returns where one of ours was idle for longer than it may.
func impatience(w io.Writer, rows []results.Row) (tooLong []string) {
	settings := impatientSettings(rows)
	if len(settings) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "setting\tpeer\tacquired/s\tof the best peer\tidle, median\tidle, longest\tgave up/s\tp99 until "+
		"held\ta sleeper late\tfailed rounds")
	best := map[string]float64{} // the best rate of a peer; no other has a waitTime, so there it is that of a deadline
	for _, s := range settings {
		var all []giverUp
		setting := s.workload
		for _, peer := range s.peers {
			g := summarise(peer, s.rows[peer])
			all = append(all, g)
			if !isOurs(peer) {
				best[setting] = max(best[setting], g.rate)
			}
			if isOurs(peer) && g.worst > millis(longestIdle) {
				tooLong = append(tooLong,
					fmt.Sprintf("%s (%s) for %.0f ms, a sleeper late by %.0f ms", peer, strings.TrimPrefix(setting, impatient+", "),
						g.worst, g.late))
			}
		}
		slices.SortFunc(all, func(a, b giverUp) int { return cmp.Compare(b.rate, a.rate) })
		base := best[setting]
		if stem, ok := strings.CutSuffix(setting, byWaitTime); ok && base == 0 {
			base = best[stem+byDeadline]
		}
		for _, g := range all {
			ratio := ""
			if isOurs(g.peer) && base > 0 {
				ratio = fmt.Sprintf("%.2f", g.rate/base)
			}
			fmt.Fprintf(t, "%s\t%s\t%.0f\t%s\t%.1f ms\t%.1f ms\t%.0f\t%s\t%.1f ms\t%d\n",
				strings.TrimPrefix(setting, impatient+", "), g.peer, g.rate, ratio,
				g.idle, g.worst, g.gaveUp, micros(g.p99), g.late, g.failed)
		}
	}
	t.Flush()
	return tooLong
}

func isOurs(peer string) bool {
	p, err := peerNamed(peer)
	return err == nil && p.Module == redlatchPeer.Module
}

func summarise(peer string, rows []results.Row) giverUp {
	var rate, idle, gaveUp, p99 []float64
	g := giverUp{peer: peer}
	for _, r := range rows {
		if r.Errors+r.Overlaps+r.Lost > 0 {
			g.failed++
		}
		ms, ok := r.Value("idle_ms")
		if !ok {
			continue // it did not come to an end
		}
		up, _ := r.Value("gave_up_per_s")
		sleeper, _ := r.Value("late_ms")
		rate, idle, gaveUp = append(rate, r.OpsPerSec), append(idle, ms), append(gaveUp, up)
		p99 = append(p99, r.P99)
		if ms >= g.worst {
			g.worst, g.late = ms, sleeper
		}
	}
	if len(rate) == 0 {
		return g
	}
	g.rate, g.idle, g.gaveUp, g.p99 = median(rate), median(idle), median(gaveUp), median(p99)
	return g
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
