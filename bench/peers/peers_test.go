package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		if err := work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestRun_EveryPeerAndWorkload_IsMeasured(t *testing.T) {
	redistest.NeedServer(t)
	b := &bench{Rounds: 1, Warm: 20 * time.Millisecond, Duration: 40 * time.Millisecond, settings: []setting{
		{uncontended, 1, 4, 0}, {contended, 2, 4, 0}, {impatient, 2, 4, 5 * time.Millisecond}, {claiming, 1, 4, 0},
		{limiting, 1, 4, 0}, {clustered, 2, 4, 0}}}
	f := redistest.NoError(b.run(t.Context(), io.Discard))(t)
	require.Len(t, f.Rows, len(b.plan()))
	var ops, failed int
	measured := map[string][]string{}
	for _, r := range f.Rows {
		what := fmt.Sprintf("%+v", r)
		measured[r.Peer] = append(measured[r.Peer], r.Workload)
		require.Zero(t, r.Overlaps, what)
		ops += r.Ops // not of each: a busy machine can let so short a time pass without one
		if r.Errors > 0 {
			t.Log(what) // on a busy machine a call may run out of time
			failed++
			continue
		}
		require.Zero(t, r.Lost, what)
		require.Empty(t, r.Note, what)
	}
	require.Positive(t, ops)
	require.Less(t, failed, len(f.Rows)/4)
	for _, p := range peers {
		slices.Sort(measured[p.Name])
		require.ElementsMatch(t, p.Workloads, measured[p.Name], p.Name)
	}
}

func TestRun_PeerFails_OthersAreMeasured(t *testing.T) {
	redistest.NeedServer(t)
	b := &bench{Rounds: 1, Warm: time.Millisecond, Duration: 20 * time.Millisecond}
	broken := step{setting{uncontended, 1, 1, 0}, Peer{Name: "nobody"}, 1}
	_, err := b.measure(t.Context(), broken)
	require.ErrorContains(t, err, "no peer")
	p := redistest.NoError(peerNamed(lower))(t)
	var row Row
	redistest.Eventually(t, time.Minute, "an operation within so short a time", func() bool {
		row = redistest.NoError(b.measure(t.Context(), step{broken.setting, p, 1}))(t)
		return row.Ops > 0
	})
	// Scripts may run between a reading of the server's counts and the moment from which operations count. The lock of
	// the first operation may have come before both.
	require.GreaterOrEqual(t, row.Scripts, 2-1/float64(row.Ops))
}

func TestArena_OtherProcess_SharesIt(t *testing.T) {
	a := redistest.NoError(newArena())(t)
	defer os.Remove(a.path)
	defer a.Close()
	b := redistest.NoError(openArena(a.path))(t)
	defer b.Close()
	a.Begin()
	require.True(t, b.Counts())
	a.Enter(0)
	b.Enter(1)
	overlaps, _ := a.Broken()
	require.EqualValues(t, 1, overlaps)
}

func TestPlan_Rounds_HaveOtherOrders(t *testing.T) {
	b := &bench{Rounds: 2, Workloads: regexp.MustCompile("^contended$")}
	orders := map[int][]string{}
	for _, s := range b.plan() {
		if s.Workers == 64 {
			orders[s.round] = append(orders[s.round], s.peer.Name)
		}
	}
	require.Len(t, orders[1], len(lockPeers))
	require.ElementsMatch(t, orders[1], orders[2])
	require.NotEqual(t, orders[1], orders[2])
}

func TestResults_CSVTableAndPictures_HaveTheRows(t *testing.T) {
	row := func(peer string, round int, rate float64) Row {
		return Row{Workload: contended, Setting: "64 workers in 8 processes", Peer: peer, Round: round, Rate: rate,
			P50: 900, P99: 12345, Jain: 0.5, Commands: 2.25}
	}
	f := results{Facts: []fact{{"date", "today: now"}}, Rows: []Row{row(lower, 1, 100), row("redlatch", 1, 300),
		row(lower, 2, 1000), row("redlatch", 2, 500), row(lower, 3, 100), row("redlatch", 3, 200)}}
	f.Rows[5].Overlaps, f.Rows[5].Note = 1, `it said "no", twice`
	file := filepath.Join(t.TempDir(), "made", "results.csv")
	require.NoError(t, f.save(file))
	saved := redistest.NoError(os.ReadFile(file))(t)
	require.Contains(t, string(saved), "# date: today: now\nworkload,setting,peer,round,")
	require.Contains(t, string(saved), "\ncontended,64 workers in 8 processes,redlatch,3,0,0,200,900,12345,0.5,2.25,"+
		"0,0,0,0,1,0,0,\"it said \"\"no\"\", twice\"\n")
	require.Contains(t, f.table(), "| contended, 64 workers in 8 processes | **redlatch** | 300/s | 2.0x | 900 us | "+
		"12 ms | 0.50 | 2.2 | 1 overlaps it said \"no\", twice |\n| contended, 64 workers in 8 processes | raw SET NX | "+
		"100/s | 1.0x |")
	require.NoError(t, f.draw(filepath.Dir(file)))
	for _, name := range []string{"contended.svg", "waits.svg"} {
		picture := redistest.NoError(os.ReadFile(filepath.Join(filepath.Dir(file), name)))(t)
		require.Contains(t, string(picture), "redlatch")
	}
}

func TestResults_OurLockIsIdleTooLong_IsAnError(t *testing.T) {
	row := func(peer string, idle float64) Row { return Row{Workload: impatient, Peer: peer, IdleMillis: idle} }
	require.NoError(t, results{Rows: []Row{row("rueidislock", 700), row("redlatch", 90)}}.idle())
	require.ErrorContains(t, results{Rows: []Row{row("redlatch", 480)}}.idle(), "redlatch was free for 480 ms")
}

func TestCommand_WrongArguments_AreRefused(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"nothing to measure", []string{"-peers", "nobody"}}, {"nothing to measure", []string{"-workloads", "sleeping"}},
		{"nothing to measure", []string{"-rounds", "0"}}, {"error parsing regexp", []string{"-peers", "("}},
		{"unexpected", []string{"everything"}},
	} {
		require.ErrorContains(t, command(c.args), c.want)
	}
}

func TestLimits_OverTheRate_AreRefused(t *testing.T) {
	redistest.NeedServer(t)
	for name, open := range openLimits {
		t.Run(name, func(t *testing.T) {
			s := redistest.NoError(startRedis(false))(t)
			defer s.stop()
			ask, end, err := open(Setup{Redis: s.addr}, 5)
			require.NoError(t, err)
			defer end()
			allowed := 0
			for range 40 {
				ok := redistest.NoError(ask(context.Background()))(t)
				if ok {
					allowed++
				}
			}
			require.GreaterOrEqual(t, allowed, 4)
			require.LessOrEqual(t, allowed, 30)
		})
	}
}
