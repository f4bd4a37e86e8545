package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/results"
)

// measured makes a run of three rounds in which everything of a peer is as said; edit changes rows.
func measured(edit func(r *results.Row)) *results.File {
	f := &results.File{Facts: []results.Fact{
		{Name: "date", Value: "2026-01-02"}, {Name: "machine", Value: "2 x something"}, {Name: "command", Value: "go run ."},
		{Name: "peer redlatch", Value: "push, ours"}, {Name: "peer raw scripts", Value: "spin, floor"},
		{Name: "peer rueidislock", Value: "push, theirs"},
		{Name: "peer redislock, 100 ms", Value: "poll, theirs"}, {Name: "peer rsemaphore.Semaphore", Value: "push, ours"},
		{Name: "peer ZSET, 10 ms", Value: "poll, theirs"}, {Name: "peer rlock.ReadWrite", Value: "push, ours"},
		{Name: "claims raw INCR", Value: "INCR"}, {Name: "claims Counter.Incr", Value: "rcounter"},
		{Name: "peer rlock.Plain", Value: "push, ours"}, {Name: "peer redislock, 1 ms", Value: "poll, theirs"},
		{Name: "peer rsemaphore.Permit", Value: "push, ours"}, {Name: "peer raw permit scripts", Value: "spin, floor"},
		{Name: "claims Stock.Claim", Value: "rcounter"},
	}}
	add := func(workload string, processes, workers int, peer string, rate, p50, p99, jain, commands float64) {
		for round := 1; round <= 3; round++ {
			r := results.Blank(workload, processes, workers, peer, round)
			wobble := 1 + 0.1*float64(round-2) // the machine is slower in some rounds, for all alike
			r.Seconds, r.Ops, r.OpsPerSec = 1, int64(rate), rate/wobble
			r.P50, r.P99, r.Max, r.Jain, r.Commands, r.Scripts, r.CPU, r.Conns = p50*wobble, p99*wobble, p99*2, jain, commands,
				2, 10, 3
			r.Least, r.Most = 1, 2
			if workload == "contended" {
				r.Extra = fmt.Sprintf("worst_window=0.%d5 empty_windows=0 windows=40", 9-round)
			}
			if workload == "crash" {
				r.Extra = "lease_ms=1000 left_ms=850"
			}
			if workload == "renewal" {
				r.Extra = "lease_ms=3000 goroutines=7 bytes_per_lock=900 commands_per_s=100 scripts_per_s=10"
			}
			if strings.HasPrefix(workload, "semaphore") || strings.HasPrefix(workload, "readwrite") {
				r.Extra = fmt.Sprintf("worst_window=0.%d5 empty_windows=0 windows=15 reads_per_s=800 writes_per_s=60", 9-round)
				r.Max = 100_000 * float64(round)
			}
			if edit != nil {
				edit(&r)
			}
			f.Rows = append(f.Rows, r)
		}
	}
	for _, n := range []int{1, 64} {
		add("uncontended", 1, n, "redlatch", 10000, 105, 200, 1, 9)
		add("uncontended", 1, n, "raw scripts", 11000, 100, 180, 1, 9)
		add("uncontended", 1, n, "rueidislock", 8000, 130, 250, 1, 6)
		add("uncontended", 1, n, "rlock.Plain", 7840, 130, 250, 1, 6)
		add("uncontended", 1, n, "redislock, 1 ms", 7990, 130, 250, 1, 6)
		add("uncontended", 1, n, "rsemaphore.Permit", 5000, 110, 250, 1, 20)
		add("uncontended", 1, n, "raw permit scripts", 5500, 100, 250, 1, 20)
	}
	for _, n := range []int{2, 64} {
		add("contended", min(n, 8), n, "redlatch", 9000, 1000, 2000, 0.99, 12)
		add("contended", min(n, 8), n, "rueidislock", 3000, 5000, 60000, 0.9, 26)
		add("contended", min(n, 8), n, "redislock, 100 ms", 900, 100, 900000, 0.2, 6)
		add("contended", 1, n, "redlatch", 9000, 1000, 2000, 1, 6)
	}
	for _, n := range []int{1, 2} {
		add("handover", 1, n, "redlatch", 100, 200, 400, 1, 20)
		add("handover", 1, n, "rueidislock", 100, 250, 500, 1, 10)
	}
	add("crash", 2, 8, "redlatch", 8, 870000, 871000, 1, 0)
	add("renewal", 1, 1000, "redlatch", 1000, 0, 0, 1, 13)
	for _, far := range []string{"", away} {
		add("semaphore"+far, 4, 32, "rsemaphore.Semaphore", 1200, 17000, 30000, 1, 10)
		add("semaphore"+far, 4, 32, "ZSET, 10 ms", 1000, 9000, 200000, 0.9, 20)
		add("readwrite"+far, 4, 33, "rlock.ReadWrite", 5000, 600, 9000, 1, 10)
	}
	add("claims", 1, 256, "raw INCR", 100000, 100, 200, 1, 1)
	add("claims", 1, 256, "Counter.Incr", 90000, 110, 200, 1, 1)
	add("claims", 1, 256, "Stock.Claim", 150000, 80, 200, 1, 0.2)
	return f
}

// written are the texts of a run, the page first and the others by name, and the charts.
func written(s *summary) (text string, charts map[string]string) {
	files := document(s)
	text, charts = files["benchmarks.md"], map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch {
		case strings.HasSuffix(name, ".svg"):
			charts[strings.TrimPrefix(name, folder)] = files[name]
		case name != "benchmarks.md":
			text += "\n" + files[name]
		}
	}
	return text, charts
}

// goals is the file that judges a run.
func goals(s *summary) string { return document(s)["benchmarks/goals.md"] }

// row finds the line of a table that has all the words.
func row(t *testing.T, text string, words ...string) string {
	t.Helper()
next:
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		return line
	}
	t.Fatalf("no row with %q in:\n%s", words, text)
	return ""
}

func TestGoalsAreJudgedByWhatWasMeasured(t *testing.T) {
	text := goals(summarise(measured(nil)))
	// ratios are of the same round: the machine's moods cancel out, 10000/8000 and 9000/3000 in each
	require.Contains(t, row(t, text, "lock and unlock, 1 goroutine: rate", "(rueidislock)"),
		"| at least 1x | 1.25x | 1.38x | yes |")
	require.Contains(t, row(t, text, "lock and unlock, 64 goroutines: rate", "(rueidislock)"),
		"| at least 1.1x | 1.25x | 1.38x | yes |")
	require.Contains(t, row(t, text, "lock and unlock, 64 goroutines: p99"), "| at most 0.5x | 0.80x | 0.72x | no |")
	require.Contains(t, row(t, text, "lock and unlock, 256 goroutines: rate"), "| at least 1.5x | not measured | - | - |")
	require.Contains(t, row(t, text, "Plain, 64 goroutines: rate over redislock's", "(redislock, 1 ms)"),
		"| at least 0.95x | 0.98x | - | yes |")
	require.Contains(t, row(t, text, "Plain, 64 goroutines: rate over redsync's"), "| not measured |")
	require.Contains(t, row(t, text, "8 processes, 64 workers: rate", "(rueidislock)"), "| 3.00x | - | yes |")
	require.Contains(t, row(t, text, "8 processes, 64 workers: p99 over that peer"), "| 0.033x | - | yes |")
	require.Contains(t, row(t, text, "8 processes, 64 workers: windows"),
		"| 0 of 120, the slowest served 0.65 of the median | - | yes |")
	require.Contains(t, row(t, text, "8 processes, 64 workers: commands"), "| at most 18 | 12.0 | - | yes |")
	require.Contains(t, row(t, text, "8 processes, 64 workers: Jain"), "| 0.99 | - | yes |")
	require.Contains(t, row(t, text, "8 processes, 16 workers: Jain"), "| not measured |")
	require.Contains(t, row(t, text, "hand-over: p50"), "| 0.80x | - | yes |")
	require.Contains(t, row(t, text, "Counter.Incr, 256 goroutines: rate"), "| at least 0.85x | 0.90x | - | yes |")
	require.Contains(t, row(t, text, "a permit, 1 goroutine: p50"), "| at most 1.25x | 1.10x | - | yes |")

	text = goals(summarise(measured(func(r *results.Row) {
		if isOurs(r.Peer) || r.Peer == counterUp {
			r.P50, r.P99, r.OpsPerSec, r.Commands, r.Jain = r.P50*10, r.P99*10, r.OpsPerSec/10, 40, 0.5
			r.Extra = strings.Replace(r.Extra, "empty_windows=0", "empty_windows=1", 1)
		}
	})))
	for _, goal := range []string{"lock and unlock, 1 goroutine: rate", "lock and unlock, 64 goroutines: p99",
		"Plain, 64 goroutines: rate over redislock", "64 workers: rate",
		"64 workers: p99", "64 workers: windows", "64 workers: commands", "64 workers: Jain", "hand-over: p50",
		"Counter.Incr, 256 goroutines: rate", "a permit, 1 goroutine: p50"} {
		require.Contains(t, row(t, text, goal), "| no |", goal)
	}

	text = goals(summarise(measured(func(r *results.Row) {
		r.Extra = strings.Replace(r.Extra, "windows=40", "windows=4", 1)
	})))
	require.Contains(t, row(t, text, "64 workers: windows"), "| too few |")
}

func TestThePageBeginsWithWhatACycleCosts(t *testing.T) {
	text, _ := written(summarise(measured(nil)))
	_, text, ok := strings.Cut(text, "## What does it cost me?")
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "\n## ")
	require.Contains(t, row(t, text, "lock and unlock, 1 goroutine "), "| 2.00 | 9.00 | 10.0 us | 105 us | 1.05x |")
	require.Contains(t, row(t, text, "Counter.Incr, 1 goroutine"), "| not measured |")
	require.Contains(t, row(t, text, "a permit, 1 goroutine "), "| 110 us | 1.10x |", "over its own floor")
	require.Contains(t, text, "per lease, 900 bytes in its process")
}

func TestFiguresInWhichAPeerIsBetterAreListed(t *testing.T) {
	files := document(summarise(measured(nil)))
	behind := files["benchmarks/behind.md"]
	require.Contains(t, row(t, behind, "uncontended, 1 ", "commands"), "| 9.00 | rueidislock 6.00; redislock, 1 ms 6.00 |")
	require.Contains(t, row(t, behind, "contended, 8 processes, 64 workers", "p50"), "redislock, 100 ms 100 us")
	require.NotContains(t, behind, "raw scripts")
	require.NotRegexp(t, regexp.MustCompile(`contended, 8 processes, 64 workers \| rate`), behind)
}

func TestQueuesSayTheirWorstWindowAndTheirLongestWait(t *testing.T) {
	text, charts := written(summarise(measured(nil)))
	_, queues, ok := strings.Cut(text, "## Queues")
	require.True(t, ok)
	queues, _, _ = strings.Cut(queues, "\n# ")
	behind := document(summarise(measured(nil)))["benchmarks/behind.md"]
	require.Equal(t, 2, strings.Count(queues, "\n| **rsemaphore.Semaphore** | push | "))
	require.Contains(t, row(t, queues, "rsemaphore.Semaphore"), "| 300 ms | 0.65 | 0 | 1.00 | 10.0 |", "of three rounds")
	require.Contains(t, row(t, queues, "rlock.ReadWrite"), "| 800/s | 60.0/s |")
	for _, name := range []string{"queue-semaphore.svg", "queue-semaphore-away.svg", "queue-readwrite.svg",
		"queue-readwrite-away.svg"} {
		require.Contains(t, charts, name)
	}
	require.Contains(t, row(t, behind, "semaphore", "p50"), "| rsemaphore.Semaphore 17.0 ms | ZSET, 10 ms 9.0 ms |")
	require.NotRegexp(t, regexp.MustCompile(`semaphore \| rate`), behind)

	text, _ = written(summarise(measured(func(r *results.Row) {
		if r.Workload == "readwrite" {
			r.Max = 0.99e6
		}
	})))
	require.Contains(t, row(t, text, "rlock.ReadWrite"), "| > 990 ms |", "a wait that was cut off")
}

func TestBrokenPromisesAndErrorsAreSaid(t *testing.T) {
	text, _ := written(summarise(measured(nil)))
	require.Contains(t, text, "Nothing: no peer had two holders at the same time")
	text, _ = written(summarise(measured(func(r *results.Row) {
		if r.Workload == "contended" && r.Peer == "rueidislock" && r.Workers == 64 && r.Round == 2 {
			r.Overlaps, r.Lost = 3, 2
		}
		if r.Workload == "uncontended" && r.Peer == "rueidislock" && r.Round == 1 && r.Workers == 1 {
			r.Errors, r.Note = 1, "somebody | hung"
		}
	})))
	require.Contains(t, row(t, text, "contended, 8 processes, 64", "rueidislock", "mutual exclusion broken"),
		"3 overlaps, 2 updates lost | 1 |")
	require.Contains(t, row(t, text, "uncontended, 1 process, 1", "1 error; somebody / hung"), "| 1 |")
}

func TestARoundThatFailedDoesNotCount(t *testing.T) {
	f := measured(func(r *results.Row) {
		if r.Workload == "uncontended" && r.Peer == ours && r.Round == 2 {
			blank := results.Blank(r.Workload, r.Processes, r.Workers, r.Peer, r.Round)
			blank.Errors, blank.Note = 1, "no answer"
			*r = blank
		}
	})
	s := summarise(f)
	v, ok := s.ratio(setting{"uncontended", 1, 1}, ours, floor, p50)
	require.True(t, ok)
	require.Equal(t, 2, v.n)
	require.InDelta(t, 1.05, v.median, 1e-9)
}

func TestEveryChartIsWellFormedAndShown(t *testing.T) {
	text, charts := written(summarise(measured(nil)))
	require.NotEmpty(t, charts)
	for name, svg := range charts {
		require.Contains(t, text, "]("+name+")")
		require.Contains(t, svg, "prefers-color-scheme:dark")
		require.NotContains(t, svg, "NaN", name)
		require.NotContains(t, svg, "Inf", name)
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, name)
		}
	}
	for _, m := range regexp.MustCompile(`\((?:benchmarks/)?([a-z0-9-]+\.svg)\)`).FindAllStringSubmatch(text, -1) {
		require.Contains(t, charts, m[1])
	}
}

func TestARunOfOnePeerAndOneWorkloadIsAPageToo(t *testing.T) {
	f := measured(nil)
	f.Rows = f.Rows[:3]
	text, charts := written(summarise(f))
	require.Len(t, charts, 1)
	require.NotContains(t, text, "NaN")
	require.NotContains(t, text, "## Contended")
}

// What a user asks is answered in a few minutes; the files of tables are as long as they are.
func TestThePageIsShort(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "benchmarks.md"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(strings.Fields(string(page))), 1500)
}

func TestThePageComparesTheLocks(t *testing.T) {
	page := document(summarise(measured(nil)))["benchmarks.md"]
	require.Contains(t, row(t, page, "| **redlatch** |"),
		"| 105 us | 105 us | 9.00 | 9000/s | 2.0 ms | 0.99 | 12.0 | 200 us |")
	require.Contains(t, row(t, page, "| rueidislock |"),
		"| 130 us | 130 us | 6.00 | 3000/s | 60.0 ms | 0.90 | 26.0 | 250 us |")
	require.NotContains(t, page, "| raw scripts |")
	require.NotContains(t, page, "is the fastest")
	require.Contains(t, page, "Under contention redlatch serves more than any other")
	other := document(summarise(measured(func(r *results.Row) {
		if r.Peer == ours {
			r.P50, r.P99 = r.P50*100, r.P99*100
		}
	})))["benchmarks.md"]
	require.Contains(t, other, "For a single goroutine rueidislock is the fastest")
	require.NotContains(t, other, "Under contention redlatch serves more")
	require.Contains(t, page, "](benchmarks/contended-8-p99.svg)")
	require.Contains(t, page, "[locks](benchmarks/locks.md)")
	require.NotContains(t, page, "benchmarks/places.md")
	require.Contains(t, page, "\n- lock and unlock, 64 goroutines: p99 over that peer's: 0.80x (at most 0.5x)\n",
		"a goal that was missed")
}

func TestTheRunWithRedissonIsASectionOfItsOwn(t *testing.T) {
	s := summarise(measured(nil))
	text, _ := written(s)
	require.NotContains(t, text, "Redisson runs in")
	f := measured(func(r *results.Row) {
		if r.Peer == "rueidislock" {
			r.Peer = redisson
		}
	})
	f.Facts = append(f.Facts, results.Fact{Name: "peer " + redisson, Value: "push, Java"})
	s.redisson = summarise(f)
	require.Contains(t, row(t, document(s)["benchmarks.md"], "| hand-over to another client: p50 |"),
		"| 200 us | 250 us | 1.25x |")
	text = document(s)["benchmarks/redisson.md"]
	require.Contains(t, row(t, text, "| redisson |", "0.33x"), "26.0") // of the rate, with 64 workers; commands
	require.Contains(t, row(t, text, "| redisson |", "1.25x"), "10.0") // a hand-over
	require.Contains(t, row(t, text, "| redisson |", "130 us"), "1.24x")
	require.Contains(t, text, "No peer had two holders at the same time")
}

func TestTheRunOnOneProcessorIsASectionOfItsOwnWithGoals(t *testing.T) {
	s := summarise(measured(nil))
	text, _ := written(s)
	require.NotContains(t, text, "one processor")
	f := measured(func(r *results.Row) {
		if r.Workload == "uncontended" && r.Peer == ours {
			r.OpsPerSec *= 2
		}
	})
	f.Facts = append(f.Facts, results.Fact{Name: "command", Value: "peers -one-processor"})
	both, _ := s.ratio(setting{"uncontended", 1, 1}, ours, floor, rate)
	s.onOne = summarise(f)
	one, _ := s.onOne.ratio(setting{"uncontended", 1, 1}, ours, floor, rate)
	require.InDelta(t, 2*both.median, one.median, 1e-9)
	text, _ = written(s)
	require.Contains(t, text, "on one processor: lock and unlock, 1 goroutine: rate over the best peer's")
	_, text, _ = strings.Cut(text, "## On one processor")
	text, _, _ = strings.Cut(text, "\n## ")
	require.Contains(t, row(t, text, "| **redlatch** |"), ranged(one, times))
}

func TestTheRunOfLargeNumbersIsASectionOfItsOwn(t *testing.T) {
	s := summarise(measured(nil))
	text, _ := written(s)
	require.NotContains(t, text, "## Large numbers")
	require.Contains(t, text, "A waiting goroutine: not measured bytes")
	r := results.Blank("scale", 1, 10000, "waiters", 1)
	r.Seconds, r.Ops, r.OpsPerSec, r.Commands, r.Scripts, r.Conns, r.Extra = 1, 10000, 5000, 11, 2, 3,
		"bytes=9000.0 left_keys=0.0"
	s.scale = summarise(&results.File{Facts: []results.Fact{{Name: "scale waiters", Value: "waiters in one process"}},
		Rows: []results.Row{r}})
	text, _ = written(s)
	require.Contains(t, row(t, text, "| waiters in one process | 1 | 10000 | 5000/s | 11.0 | 2.00 | 3 | 9000 | - |"),
		"| 0 |")
	require.Contains(t, text, "A waiting goroutine: 9000 bytes")
}

func TestSpreadIsTheMedianAndTheExtremes(t *testing.T) {
	v, ok := spreadOf([]float64{3, 1, 2})
	require.True(t, ok)
	require.Equal(t, spread{2, 1, 3, 3}, v)
	v, _ = spreadOf([]float64{4, 1, 2, 3})
	require.Equal(t, 2.5, v.median)
	_, ok = spreadOf(nil)
	require.False(t, ok)
}

// The page in the documents is what the results beside it say.
func TestTheDocumentIsWrittenFromTheResultsBesideIt(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	out := t.TempDir()
	require.NoError(t, report(filepath.Join(docs, "benchmarks", "results.csv"), out))
	same := func(name string) {
		want, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(docs, name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: run go -C bench run ./report", name)
	}
	same("benchmarks.md")
	files, err := os.ReadDir(filepath.Join(docs, "benchmarks"))
	require.NoError(t, err)
	for _, f := range files { // also what it no longer writes
		if filepath.Ext(f.Name()) != ".csv" {
			same(filepath.Join("benchmarks", f.Name()))
		}
	}
	wrote, err := os.ReadDir(filepath.Join(out, "benchmarks"))
	require.NoError(t, err)
	for _, f := range wrote {
		same(filepath.Join("benchmarks", f.Name()))
	}
}

func TestAFileThatIsNoResultIsRefused(t *testing.T) {
	require.Error(t, report(filepath.Join(t.TempDir(), "none.csv"), t.TempDir()))
	empty := filepath.Join(t.TempDir(), "empty.csv")
	w, err := os.Create(empty)
	require.NoError(t, err)
	require.NoError(t, (&results.File{}).Write(w))
	require.NoError(t, w.Close())
	require.ErrorContains(t, report(empty, t.TempDir()), "no rows")
}
