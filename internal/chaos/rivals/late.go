package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/chaos/cells"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/stage"
)

// How a write comes late.
const (
	stopped = "stopped" // the holder is stopped between its last look at the lock and its write
	looks   = "looks"   // it is stopped before that look: it asks its library, and writes if that says that it holds it
	packet  = "packet"  // the write has left before the holder is stopped, and is under way for longer than the lease
)

var lateKinds = []string{stopped, looks, packet}

// atOneTime is how many trials of a process are prepared at a time.
const atOneTime = 32

// lateRow is a library, and what the resource checks.
type lateRow struct {
	lib   cells.Library
	check string
}

func (r lateRow) String() string {
	if r.check == nothing {
		return r.lib.Name
	}
	return r.lib.Name + "+" + r.check
}

// ours reports that a lost update would break a promise.
func (r lateRow) ours() bool { return r.lib.Module == "" && r.check != nothing }

func lateRows() (rows []lateRow) {
	for _, l := range libraries {
		rows = append(rows, lateRow{l, nothing})
	}
	for _, x := range []struct{ lib, check string }{
		{"etcd", owner}, {"etcd", guard}, {"redisson", guard}, {"redlatch", guard},
	} {
		i := slices.IndexFunc(libraries, func(l cells.Library) bool { return l.Name == x.lib })
		rows = append(rows, lateRow{libraries[i], x.check})
	}
	return rows
}

// lateCount is what became of the trials of one kind.
type lateCount struct{ Trials, Taken, Refused, Withheld, Lost int }

// lateResult is a row that was tried, or why it was not.
type lateResult struct {
	row     lateRow
	release string
	notRun  error
	counts  map[string]*lateCount
}

// trials is how many there were of each kind.
func (r lateResult) trials() int {
	for _, c := range r.counts {
		return c.Trials
	}
	return 0
}

// lost is how many updates were lost, of all kinds.
func (r lateResult) lost() (n int) {
	for _, c := range r.counts {
		n += c.Lost
	}
	return n
}

func (r lateResult) print(w io.Writer) {
	for _, kind := range lateKinds {
		if c := r.counts[kind]; c != nil {
			fmt.Fprintf(w, "%v %s: %+v\n", r.row, kind, *c)
		}
	}
	if r.notRun != nil {
		fmt.Fprintf(w, "%v: not run: %v\n", r.row, r.notRun)
	}
}

// late is the command that writes docs/chaos/late.md.
func late(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("late", flag.ContinueOnError)
	flags.SetOutput(progress)
	trials := flags.Int("trials", 1000, "how many of each kind; ten times as many of our lock with our guard")
	batch := flags.Int("batch", 200, "how many trials share a process that is stopped")
	only := flags.String("only", "", "some rows, with commas between them: redsync,redlatch+contrib/fence")
	markdown := flags.String("markdown", "", "the page to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *trials < moments || *batch < moments || flags.NArg() > 0 {
		return fmt.Errorf("-trials and -batch must be %d or more, and %q nothing", moments, flags.Args())
	}
	var results []lateResult
	lost := 0
	for _, row := range lateRows() {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), row.String()) {
			continue
		}
		r := row.run(ctx, *trials, *batch)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.print(progress)
		if row.ours() {
			lost += r.lost()
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return fmt.Errorf("no row %q; there are %v", *only, lateRows())
	}
	if err := writeLate(*markdown, results, out); err != nil {
		return err
	}
	if lost > 0 {
		return fmt.Errorf("%d updates were lost under our lock and our guard", lost)
	}
	return nil
}

// run makes the trials of a row: of ours ten times as many.
func (r lateRow) run(ctx context.Context, trials, batch int) lateResult {
	if r.ours() {
		trials *= 10
	}
	of := lateResult{row: r}
	if of.release, of.notRun = r.lib.Release(ctx); of.notRun == nil {
		st := &stage.Stage{}
		failed := st.Try(func() { of.counts, of.notRun = r.try(ctx, st, lateKinds, trials, batch) })
		st.Clear()
		of.notRun = errors.Join(of.notRun, failed)
	}
	return of
}

// try makes trials of each kind. An error ends those of the row.
func (r lateRow) try(ctx context.Context, t testing.TB, kinds []string, trials, batch int) (
	map[string]*lateCount, error) {
	setup, err := r.lib.Serve(t)
	if err != nil {
		return nil, err
	}
	setup.Token = r.check == guard
	at := setup.Addrs[0]
	if r.check != owner {
		at = redistest.Start(t).Addr()
	}
	locker, err := r.lib.Open(ctx, setup)
	if err != nil {
		return nil, err
	}
	defer locker.Close()
	resource, err := openAccounts(r.check, at)
	if err != nil {
		return nil, err
	}
	defer resource.close()
	wire := redistest.NewWire(t, at)
	counts := map[string]*lateCount{}
	for _, kind := range kinds {
		counts[kind] = &lateCount{}
		for done := 0; done < trials; done += batch {
			o := lateOrder{Library: r.lib.Name, Check: r.check, Kind: kind, Setup: setup, Accounts: wire.Addr()}
			for i := range min(batch, trials-done) {
				o.Names = append(o.Names, fmt.Sprintf("%s-%d", kind, done+i))
			}
			if err := o.stopOnce(ctx, t, wire, locker, resource, counts[kind]); err != nil {
				return counts, fmt.Errorf("%s, trials from %d: %w", kind, done, err)
			}
		}
	}
	return counts, nil
}

// When the late write comes: while the next holder reads and writes, before it reads, between its reading and its
// writing, after its writing.
const (
	meanwhile = iota
	beforeReading
	beforeWriting
	afterWriting
	moments
)

// stopOnce has a holder acquire all locks, stops it until others have them, lets its writes come, and counts.
func (o lateOrder) stopOnce(ctx context.Context, t testing.TB, wire *redistest.Wire, locker cells.Locker,
	resource accounts, count *lateCount) error {
	h, err := startHolder(ctx, o)
	if err != nil {
		return err
	}
	defer h.end()
	if line, err := h.line(); err != nil || line != "ready" {
		return fmt.Errorf("the holder says %q: %w", line, err)
	}
	goOn := func() error {
		_, err := io.WriteString(h.in, "go on\n")
		return err
	}
	if o.Kind == packet {
		wire.Hold(redistest.Up)
		defer wire.Heal()
		if err := goOn(); err != nil {
			return err
		}
		redistest.Eventually(t, time.Minute, "each write is kept back",
			func() bool { return wire.Kept() == len(o.Names) })
	}
	if err := h.stop(); err != nil {
		return err
	}
	if o.Kind != packet {
		if err := goOn(); err != nil { // which it reads when it is woken
			return err
		}
	}
	next := make([]successor, len(o.Names))
	err = some(len(next), atOneTime, func(i int) (err error) {
		next[i] = successor{locker: locker, resource: resource, name: o.Names[i], moment: i % moments}
		return next[i].before(ctx)
	})
	if err != nil {
		return err
	}
	wire.Heal() // while the holder is stopped still: of a packet only its answer waits for that
	if err := h.signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err := some(len(next), atOneTime, func(i int) error { return next[i].during(ctx) }); err != nil {
		return err
	}
	line, err := h.line()
	if err != nil {
		return err
	}
	var became []string
	if err := json.Unmarshal([]byte(line), &became); err != nil || len(became) != len(next) {
		return fmt.Errorf("the holder says %.100q: %w", line, err)
	}
	if err := some(len(next), atOneTime, func(i int) error { return next[i].after(ctx) }); err != nil {
		return err
	}
	for i, s := range next {
		if err := count.add(became[i], s); err != nil {
			return err
		}
	}
	return nil
}

// add counts a trial by what became of the late write.
func (c *lateCount) add(became string, s successor) error {
	acknowledged := int64(1) // the successor's
	switch became {
	case taken:
		acknowledged++
		c.Taken++
	case refused:
		c.Refused++
	case withheld:
		c.Withheld++
	}
	c.Trials++
	if s.value < acknowledged {
		c.Lost++
	} else if s.value > acknowledged {
		return fmt.Errorf("%s: %d of %d writes are there: the trial is wrong", s.name, s.value, acknowledged)
	}
	return nil
}

// successor is the holder of a lock after the one that was stopped.
type successor struct {
	locker   cells.Locker
	resource accounts
	name     string
	moment   int
	held     cells.Held
	value    int64
}

func (s *successor) before(ctx context.Context) (err error) {
	if s.held, err = acquire(ctx, s.locker, s.name); err != nil {
		return err
	}
	switch s.moment {
	case beforeWriting:
		return s.read(ctx)
	case afterWriting:
		return s.add(ctx, s.read(ctx))
	}
	return nil
}

func (s *successor) during(ctx context.Context) error {
	if s.moment != meanwhile {
		return nil
	}
	time.Sleep(rand.N(2 * time.Millisecond))
	return s.add(ctx, s.read(ctx))
}

func (s *successor) after(ctx context.Context) (err error) {
	switch s.moment {
	case beforeReading:
		err = s.add(ctx, s.read(ctx))
	case beforeWriting:
		err = s.add(ctx, nil)
	}
	if err != nil {
		return err
	}
	s.value, err = s.resource.look(ctx, s.name)
	_ = s.held.Release(ctx) // the trial is over
	return err
}

func (s *successor) read(ctx context.Context) (err error) {
	s.value, err = s.resource.read(ctx, s.name, s.held)
	return err
}

// add writes one more than what was read, unless that failed. If it is refused, this holder has lost the lock, too, as
// on a machine too busy to renew it: it acquires it again, and begins with the reading.
func (s *successor) add(ctx context.Context, err error) error {
	for range 5 {
		if err == nil {
			err = s.resource.write(ctx, s.name, s.held, s.value+1)
		}
		if !errors.Is(err, errRefused) {
			break
		}
		if s.held, err = acquire(ctx, s.locker, s.name); err != nil {
			return err
		}
		err = s.read(ctx)
	}
	return err
}
