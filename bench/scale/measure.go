package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/redlatch/redlatch/bench/internal/results"
	"github.com/redlatch/redlatch/rlock"
)

func numbered(i int) string { return "order:" + strconv.Itoa(i) }

// ready is a client that has been used, and the moment before it is measured.
func (s *scene) ready(ctx context.Context) (*member, snapshot, error) {
	m, err := open(s.addr)
	if err != nil {
		return nil, snapshot{}, err
	}
	if err := m.warm(ctx); err != nil {
		return nil, snapshot{}, err
	}
	before, err := s.look(ctx)
	return m, before, err
}

func names(ctx context.Context, s *scene, row *results.Row) error {
	m, before, err := s.ready(ctx)
	if err != nil {
		return err
	}
	if err := each(ctx, row.Workers, func(i int) error { return m.cycle(ctx, numbered(i)) }); err != nil {
		return err
	}
	after, err := s.look(ctx)
	if err != nil {
		return err
	}
	done(row, before, after, row.Workers)
	there(row, before, after)
	if err := s.left(ctx, row, before); err != nil {
		return err
	}
	return m.close()
}

// hold locks n names; free unlocks them.
func (m *member) hold(ctx context.Context, n int) (free func() error, err error) {
	holds := make([]*rlock.Hold, n)
	err = each(ctx, n, func(i int) (err error) {
		holds[i], err = m.locks.Reentrant(numbered(i)).Lock(ctx)
		return err
	})
	return func() error {
		defer clear(holds)
		return each(ctx, n, func(i int) error { return holds[i].Unlock(ctx) })
	}, err
}

func held(ctx context.Context, s *scene, row *results.Row) error {
	m, before, err := s.ready(ctx)
	if err != nil {
		return err
	}
	free, err := m.hold(ctx, row.Workers)
	if err != nil {
		return err
	}
	during, err := s.look(ctx)
	if err != nil {
		return err
	}
	done(row, before, during, row.Workers)
	there(row, before, during)
	if err := s.watched(ctx, row, during); err != nil {
		return err
	}
	if err := free(); err != nil {
		return err
	}
	if err := s.left(ctx, row, before); err != nil {
		return err
	}
	return m.close()
}

// queue has n waiters wait and pass the lock on; served returns when all have had it.
func (m *member) queue(ctx context.Context, n int, name func(i int) string) (served func() error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	for i := range n {
		wg.Go(func() {
			if err := m.cycle(ctx, name(i)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
		})
	}
	return func() error { wg.Wait(); return first }
}

func waiters(ctx context.Context, s *scene, row *results.Row) error {
	holder, err := open(s.addr)
	if err != nil {
		return err
	}
	of := max(row.Workers/100, 1)
	free, err := holder.hold(ctx, of)
	if err != nil {
		return err
	}
	m, before, err := s.ready(ctx)
	if err != nil {
		return err
	}
	served := m.queue(ctx, row.Workers, func(i int) string { return numbered(i % of) })
	if err := holder.queued(ctx, of, 1); err != nil {
		return err
	}
	during, err := s.waiting(ctx, row, before)
	if err != nil {
		return err
	}
	if err := free(); err != nil {
		return err
	}
	if err := served(); err != nil {
		return err
	}
	after, err := s.look(ctx)
	if err != nil {
		return err
	}
	done(row, during, after, row.Workers)
	before.keys = 0 // those that the holder held then
	if err := s.left(ctx, row, before); err != nil {
		return err
	}
	if err := holder.close(); err != nil {
		return err
	}
	return m.close()
}

// waiting watches what waits, and returns the moment at which it may go on.
func (s *scene) waiting(ctx context.Context, row *results.Row, before snapshot) (x snapshot, err error) {
	x, err = s.look(ctx)
	if err != nil {
		return x, err
	}
	there(row, before, x)
	if err := s.watched(ctx, row, x); err != nil {
		return x, err
	}
	return s.look(ctx)
}

func inProcesses(ctx context.Context, s *scene, row *results.Row) error {
	holder, err := open(s.addr)
	if err != nil {
		return err
	}
	free, err := holder.hold(ctx, row.Workers)
	if err != nil {
		return err
	}
	before, err := s.look(ctx)
	if err != nil {
		return err
	}
	group, err := gather(row.Processes, s.addr)
	if err != nil {
		return err
	}
	defer group.Stop()
	groups := max(row.Processes/4, 1) // the processes of one wait for the same names
	waits := 0
	if _, err := group.Ask(func(i int) order {
		mine := (row.Workers - i%groups + groups - 1) / groups
		waits += mine
		return order{Do: "wait", Names: mine, First: i % groups, Step: groups}
	}); err != nil {
		return err
	}
	fmt.Fprintf(s.progress, "  %d processes begin to wait, %d places in queues\n", row.Processes, waits)
	if err := holder.queued(ctx, row.Workers, waits/row.Workers); err != nil {
		return err
	}
	during, err := s.look(ctx)
	if err != nil {
		return err
	}
	answers, err := group.Ask(every("look"))
	if err != nil {
		return err
	}
	row.Conns = during.conns
	note(row, "bytes", mean(answers, func(a answer) float64 {
		return float64(a.Bytes)
	})*float64(row.Processes)/float64(waits))
	note(row, "goroutines", mean(answers, func(a answer) float64 { return float64(a.Goroutines) }))
	note(row, "server_bytes", float64(during.server-before.server)/float64(waits))
	if err := s.watched(ctx, row, during); err != nil {
		return err
	}
	if during, err = s.look(ctx); err != nil {
		return err
	}
	if err := free(); err != nil {
		return err
	}
	if _, err := group.Ask(every("served")); err != nil {
		return err
	}
	after, err := s.look(ctx)
	if err != nil {
		return err
	}
	done(row, during, after, waits)
	if answers, err = group.Ask(every("left")); err != nil {
		return err
	}
	group.Stop()
	before.keys = 0 // those that the holder held then
	x := row.Extra
	if err := s.left(ctx, row, before); err != nil {
		return err
	}
	last, _ := row.Value("left_keys")
	conns, _ := row.Value("left_connections")
	row.Extra = x
	note(row, "left_bytes", mean(answers, func(a answer) float64 { return float64(a.Bytes) }))
	note(row, "left_goroutines", mean(answers, func(a answer) float64 { return float64(a.Goroutines) }))
	note(row, "left_keys", last)
	note(row, "left_connections", conns)
	return holder.close()
}

// every process does the same.
func every(do string) func(int) order { return func(int) order { return order{Do: do} } }

func mean(all []answer, of func(a answer) float64) (sum float64) {
	for _, a := range all {
		sum += of(a)
	}
	return sum / float64(len(all))
}

func clients(ctx context.Context, s *scene, row *results.Row) error {
	before, err := s.look(ctx)
	if err != nil {
		return err
	}
	all := make([]*member, row.Workers)
	if err := each(ctx, len(all), func(i int) (err error) {
		if all[i], err = open(s.addr); err == nil {
			err = all[i].cycle(ctx, numbered(i))
		}
		return err
	}); err != nil {
		return err
	}
	during, err := s.look(ctx)
	if err != nil {
		return err
	}
	done(row, before, during, row.Workers)
	there(row, before, during)
	if err := s.watched(ctx, row, during); err != nil {
		return err
	}
	if err := each(ctx, len(all), func(i int) error { return all[i].close() }); err != nil {
		return err
	}
	clear(all)
	return s.left(ctx, row, before)
}
