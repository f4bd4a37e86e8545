package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/bench/internal/results"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := work(role, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// brief is all workloads, each for as short as it can be.
func brief(t *testing.T) (*bench, context.Context) {
	cfg := defaults()
	cfg.Rounds, cfg.Slice, cfg.Slices = 1, 5*time.Millisecond, 1
	cfg.Goroutines, cfg.Processes, cfg.Waiters = []int{1, 4, 16}, []int{2}, []int{4}
	cfg.Warm, cfg.Duration = 20*time.Millisecond, 40*time.Millisecond
	cfg.Handover, cfg.Pairs = 100*time.Millisecond, 1
	cfg.Crash, cfg.Victims = 300*time.Millisecond, 2
	cfg.Held, cfg.Renewal = 20, 400*time.Millisecond
	cfg.Queued, cfg.Window, cfg.Crowd = 60*time.Millisecond, 30*time.Millisecond, 2
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return &bench{cfg: cfg, dir: t.TempDir()}, ctx
}

func TestEveryWorkloadRunsWithEveryPeer(t *testing.T) {
	redistest.NeedServer(t)
	b, ctx := brief(t)
	var shown bytes.Buffer
	rows, err := b.run(ctx, &progress{w: &shown})
	t.Logf("%s", &shown)
	require.NoError(t, err)
	require.Len(t, rows, len(b.plan()))

	measured := map[string][]string{}
	var acquired int64
	late := 0
	well := 0 // rows of rueidislock without an error
	var kept int64
	for _, r := range rows {
		what := fmt.Sprintf("%s of %s, %d processes, %d workers: %+v", r.Workload, r.Peer, r.Processes, r.Workers, r)
		measured[r.Workload] = append(measured[r.Workload], r.Peer)
		require.Zero(t, r.Overlaps, what)
		if r.Errors > 0 && (strings.HasPrefix(r.Peer, "rueidislock") || r.Peer == "lock + GET + SET") {
			t.Log(what) // on a slow machine its waiters may sleep on a free lock, wherever that happens to be
			continue
		}
		if r.Errors > 0 && strings.Contains(r.Note, context.DeadlineExceeded.Error()) {
			t.Log(what) // and a machine that stands still for seconds lets anybody's call run out of time
			late++
			continue
		}
		if strings.HasPrefix(r.Peer, "rueidislock") {
			well++
		}
		require.Zero(t, r.Errors, what)
		if r.Workload == renewing {
			// Leases are so short here that a slow machine may lose them, too. This one renews another key than the
			// one it holds, and is found out.
			require.True(t, r.Peer != goRedisson.Name || r.Lost > 0, what)
			kept += int64(b.cfg.Held) - r.Lost
		} else {
			require.Zero(t, r.Lost, what)
			require.Empty(t, r.Note, what)
		}
		if r.Workload == uncontended || r.Workload == claiming {
			require.Positive(t, r.Ops, what)
			require.Positive(t, r.Max, what)
		}
		if _, ok := r.Value("windows"); ok || r.Workload == contended {
			acquired += r.Ops // not each of them: on a slow machine so short a time can pass without one
		}
		if r.Ops > 0 && r.Workload != crashed && r.Workload != renewing && r.Peer != etcdPeer.Name {
			require.GreaterOrEqual(t, r.Commands, 0.0, what)
		}
		if r.Workload == crashed {
			require.EqualValues(t, b.cfg.Victims, r.Ops, what)
		}
	}
	require.Less(t, late, len(rows)/4)
	require.Positive(t, acquired)
	require.Positive(t, well)
	require.Positive(t, kept, "locks that were renewed")
	for _, p := range peers {
		if p.Optional {
			continue // see TestRedissonTakesPartWhenAsked
		}
		for w := range queues {
			require.Equal(t, p.in(w), slices.Contains(measured[w], p.Name), "%s of %s", w, p.Name)
			require.Equal(t, p.in(w), slices.Contains(measured[far(w)], p.Name), "%s of %s", w, p.Name)
		}
		if p.Queue != "" {
			continue
		}
		require.Contains(t, measured[uncontended], p.Name)
		for _, w := range []string{contended, handingOver, crashed} {
			require.Equal(t, !p.AloneOnly, slices.Contains(measured[w], p.Name), "%s of %s", w, p.Name)
		}
		require.Equal(t, p.Renews, slices.Contains(measured[renewing], p.Name), p.Name)
	}
	for _, m := range claimModes {
		require.Contains(t, measured[claiming], m.Name)
	}
}

// A lock that lets two in is reported as one, across processes.
func TestAPeerThatDoesNotExcludeIsFoundOut(t *testing.T) {
	dir := t.TempDir()
	a, err := newArena(dir)
	require.NoError(t, err)
	defer a.Close()
	b, err := openArena(a.path) // as another process does
	require.NoError(t, err)
	defer b.Close()
	one, other := newSection(a, 0, 2), newSection(b, 2, 2)

	one.Enter(1) // while warming nothing is judged
	other.Enter(2)
	other.Leave(2)
	one.Leave(1)
	overlaps, lost := a.broken()
	require.Zero(t, overlaps)
	require.Zero(t, lost)

	a.setPhase(measuring)
	one.Enter(1)
	one.Leave(1)
	other.Enter(2)
	other.Leave(2)
	overlaps, lost = a.broken()
	require.Zero(t, overlaps)
	require.Zero(t, lost)
	require.EqualValues(t, 2, b.acquisitions())

	one.Enter(0)
	other.Enter(3)
	one.Leave(0)
	other.Leave(3)
	overlaps, lost = b.broken()
	require.EqualValues(t, 1, overlaps)
	require.EqualValues(t, 1, lost)
}

// A queue that lets in more than it should is reported as one, across processes.
func TestAQueueThatLetsInTooManyIsFoundOut(t *testing.T) {
	a, err := newArena(t.TempDir())
	require.NoError(t, err)
	defer a.Close()
	b, err := openArena(a.path) // as another process does
	require.NoError(t, err)
	defer b.Close()
	a.setPhase(measuring)
	one, other := &gate{arena: a, capacity: 2, writer: -1}, &gate{arena: b, capacity: 2, writer: -1}
	for range 2 {
		one.Enter(0)
		other.Enter(1)
		one.Leave(0)
		other.Leave(1)
	}
	require.Zero(t, a.words[overlapsWord].Load())
	one.Enter(0)
	other.Enter(1)
	other.Enter(2)
	require.EqualValues(t, 1, a.words[overlapsWord].Load(), "three of two")
	for worker := range int64(3) {
		one.Leave(worker)
	}

	one.writer, other.writer, one.capacity, other.capacity = 0, 0, 100, 100
	one.Enter(1)
	other.Enter(2)
	require.EqualValues(t, 1, b.words[overlapsWord].Load(), "readers are not alone")
	one.Enter(0)
	require.EqualValues(t, 2, b.words[overlapsWord].Load(), "a writer among readers")
	require.EqualValues(t, 1, b.words[writtenWord].Load())
	require.EqualValues(t, 10, b.acquisitions())
	require.EqualValues(t, 10, b.words[firstWindow].Load())
}

func TestTheSlowestWindowIsAShareOfTheMedianOne(t *testing.T) {
	all := []window{{1, 100}, {2, 210}, {0.5, 10}, {1, 95}, {1, 0}}
	require.InDelta(t, 0, slowest(all), 1e-9)
	require.Equal(t, 1, empty(all))
	require.InDelta(t, 20.0/100, slowest(append(all[:4:4], window{1, 110})), 1e-9)
	require.Zero(t, slowest([]window{{1, 0}, {1, 0}}))
}

func TestPeersTakeTurnsInEveryRoundInAnotherOrder(t *testing.T) {
	b := &bench{cfg: defaults()}
	orders := map[int][]string{}
	for _, s := range b.plan() {
		if s.workload == contended && s.what == "8 processes, 64 workers" {
			orders[s.round] = append(orders[s.round], s.peer)
		}
	}
	require.Len(t, orders, b.cfg.Rounds)
	able := slices.DeleteFunc(b.chosen(), func(p Peer) bool { return !p.in(contended) || p.AloneOnly })
	require.Len(t, orders[1], len(able))
	require.ElementsMatch(t, orders[1], orders[2])
	require.NotEqual(t, orders[1], orders[2])
}

func TestADefaultRunFitsIntoTwelveMinutesAndAQuickOneIntoThree(t *testing.T) {
	estimate := func(cfg Config) time.Duration {
		var sum time.Duration
		for _, s := range (&bench{cfg: cfg}).plan() {
			sum += s.takes
		}
		return sum
	}
	cfg := defaults()
	require.Less(t, estimate(cfg), 12*time.Minute)
	cfg.Rounds = 7
	t.Logf("seven rounds: %v", estimate(cfg))
	require.Less(t, estimate(cfg), 20*time.Minute)
	cfg = defaults()
	cfg.quick()
	require.Less(t, estimate(cfg), 3*time.Minute)
}

func TestTheCommandWritesWhatTheReportReads(t *testing.T) {
	redistest.NeedServer(t)
	file := filepath.Join(t.TempDir(), "made", "results.csv")
	require.NoError(t, command([]string{"-quick", "-rounds", "1", "-peers", "redlatch,redislock, 1 ms", "-workloads",
		"contended",
		"-waiters", "2", "-processes", "2", "-duration", "20ms", "-out", file}))
	w, err := os.Open(file)
	require.NoError(t, err)
	defer w.Close()
	f, err := results.Read(w)
	require.NoError(t, err)
	require.Len(t, f.Rows, 2)
	require.Contains(t, f.Fact("peer rueidislock"), "github.com/redis/rueidis v1.")
	require.NotEmpty(t, f.Fact("machine"))
	require.Equal(t, `go -C bench/peers run . -duration "20ms" -peers "redlatch,redislock, 1 ms" -processes "2" `+
		`-quick -rounds "1" -waiters "2" -workloads "contended"`, f.Fact("command"))
}

func TestACommandThatCannotBeIsRefused(t *testing.T) {
	for want, args := range map[string][]string{
		`no peer "nobody"`:       {"-peers", "nobody"},
		`no workload "sleeping"`: {"-workloads", "sleeping"},
		"nothing to measure":     {"-rounds", "0"},
		"want 1 to 10000":        {"-goroutines", "0"},
		"unexpected":             {"everything"},
	} {
		require.ErrorContains(t, command(args), want)
	}
}

func TestAWorkerProcessThatFailsIsAnErrorAndNotAHang(t *testing.T) {
	c, err := startChild(workerRole)
	require.NoError(t, err)
	defer c.end()
	_, err = c.ask(order{Do: "contend"})
	require.ErrorContains(t, err, "before one to open")
	_, err = c.ask(order{Do: "open", Peer: "nobody"})
	require.ErrorContains(t, err, "no peer")
	_, err = c.ask(order{Do: "open", Peer: rawSetNX.Name, Setup: Setup{Redis: "127.0.0.1:1"}})
	require.Error(t, err)
	c.kill()
	_, err = c.ask(order{Do: "open"})
	require.Error(t, err)
}

// One peer that does not work is a row with a note, and the others are measured.
func TestAPeerThatFailsDoesNotStopTheOthers(t *testing.T) {
	redistest.NeedServer(t)
	b, ctx := brief(t)
	b.cfg.Slices = 2
	open := func(peer string) member { return member{peer, order{Do: "open", Peer: peer}, false} }
	r := rand.New(rand.NewPCG(1, 1))
	measured := map[string]int{}
	b.cfg.Goroutines = []int{1}
	all := []member{open("nobody"), open(rawSetNX.Name)}
	for _, s := range b.turns(1, uncontended, order{Do: "alone"}, r, all, all) {
		row, err := s.run(ctx)
		s.after()
		if row.Peer == "nobody" {
			require.ErrorContains(t, err, "no peer")
			continue
		}
		require.NoError(t, err)
		require.Positive(t, row.Ops)
		measured[row.Peer]++
	}
	require.Equal(t, map[string]int{rawSetNX.Name: 2}, measured)
}

func TestLeftIsExtrapolatedFromWhatTheStepsTook(t *testing.T) {
	var shown bytes.Buffer
	p := &progress{w: &shown}
	p.start([]step{{peer: "a", takes: 10 * time.Second}, {peer: "b", takes: 10 * time.Second}})
	require.Equal(t, 20*time.Second, p.left())
	p.begin(step{peer: "a", takes: 10 * time.Second})
	p.started = p.started.Add(-30 * time.Second) // it took three times as long as thought
	row := results.Blank(contended, 1, 1, "a", 1)
	outcome(&row, load.Outcome{Ops: 3, Shares: []int64{1, 2}})
	p.end(row)
	require.InDelta(t, 30, p.left().Seconds(), 1)
	require.Equal(t, 2, strings.Count(shown.String(), "\n"))
}
