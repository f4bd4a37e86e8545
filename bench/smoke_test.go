package bench_test

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// workload is one line of the benchmarks' output.
type workload struct {
	name string
	run  func(b *testing.B)
}

// Every benchmark still runs, and reports what it says it does.
func TestEveryBenchmarkRunsAndReports(t *testing.T) {
	benchtime := flag.Lookup("test.benchtime")
	old := benchtime.Value.String()
	require.NoError(t, benchtime.Value.Set("3x"))
	defer benchtime.Value.Set(old)
	*heldFlag, *leaseFlag = 10, 3*time.Second

	for group, all := range map[string][]workload{
		"uncontended": uncontended, "contended": contended, "handover": handovers, "crash": crashes, "renewal": renewals,
		"claims": claims, "queues": queues, "shared": shared,
		"permits": permitCycles, "reservations": reservations,
	} {
		for _, o := range all {
			t.Run(group+"/"+o.name, func(t *testing.T) {
				if group == "crash" || group == "renewal" {
					require.NoError(t, benchtime.Value.Set("1x"))
					defer benchtime.Value.Set("3x")
				}
				r := testing.Benchmark(o.run)
				require.Positive(t, r.N, "it failed")
				var want []string
				switch group {
				case "uncontended", "permits", "handover", "claims", "reservations", "shared":
					want = []string{"p50-us", "p99-us"}
				case "queues":
					want = []string{"p50-us", "p99-us", "longest-us", "worst-window", "jain"}
				case "contended":
					want = []string{"p50-us", "p99-us", "jain", "least", "most"}
				case "crash":
					want = []string{"%lease"}
				case "renewal":
					want = []string{"B/lock", "goroutines"}
				}
				if haveRedis() && group == "renewal" {
					want = append(want, "cmds/s", "scripts/s")
				} else if haveRedis() && group != "crash" {
					want = append(want, "cmds/op", "scripts/op")
				}
				for _, name := range want {
					require.Contains(t, r.Extra, name)
				}
				if group == "uncontended" && haveRedis() &&
					slices.Contains([]string{"redlatch/1", "floor-same-scripts/1"}, o.name) {
					require.EqualValues(t, 2, r.Extra["scripts/op"])
				}
			})
		}
	}
}
