package bench_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

// One benchmark of each kind reports what package bench's comment says. "make bench" runs the others.
func TestBenchmarks_OneOfEachKind_ReportTheirMetrics(t *testing.T) {
	benchtime := flag.Lookup("test.benchtime")
	old := benchtime.Value.String()
	require.NoError(t, benchtime.Value.Set("20x"))
	defer benchtime.Value.Set(old)
	beside := []string{"p50-us", "p99-us", "x-floor"}
	waiting := []string{"p50-us", "p99-us", "jain"}
	for name, c := range map[string]struct {
		of   workload
		want []string
	}{
		"uncontended": {uncontended[0], beside}, "permits": {permitCycles[0], beside}, "counters": {counters[1], beside},
		"claims": {claims[1], beside}, "reservations": {reservations[0], beside}, "limits": {limits[1], beside},
		"contended": {contended[0], waiting}, "queues": {queues[0], waiting}, "handover": {handovers[0], beside[:2]},
	} {
		t.Run(name, func(t *testing.T) {
			r := testing.Benchmark(c.of.run)
			require.Positive(t, r.N, "it failed")
			for _, metric := range c.want {
				require.Contains(t, r.Extra, metric)
			}
			if haveRedis() {
				require.Positive(t, r.Extra["cmds/op"])
				if name == "uncontended" {
					require.EqualValues(t, 2, r.Extra["scripts/op"])
				}
			}
		})
	}
}
