package bench_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// One benchmark of each kind reports what package bench's comment says. "make bench" runs the others.
func TestBenchmarks_OneOfEachKind_ReportTheirMetrics(t *testing.T) {
	benchtime := flag.Lookup("test.benchtime")
	old := benchtime.Value.String()
	require.NoError(t, benchtime.Value.Set("20x"))
	defer benchtime.Value.Set(old)
	beside := []string{"p50-us", "p99-us", "x-floor"}
	raw := []string{"p50-us", "p99-us", "x-raw"}
	waiting := []string{"p50-us", "p99-us", "jain"}
	for name, c := range map[string]struct {
		of   workload
		want []string
	}{
		"cost of a lock": {costs[1], raw}, "of a permit": {costs[3], raw}, "of Incr": {costs[7], raw},
		"of Allow": {costs[9], raw}, "of Buy": {costs[13], raw}, "uncontended": {uncontended[0], beside},
		"permits": {permitCycles[0], beside}, "counters": {counters[1], beside},
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

// What is recorded is done again, and not refused because it comes too late or was done before.
func TestSentRaw_EachSubject_RunsTheCommandsOfTheSubject(t *testing.T) {
	if !haveRedis() {
		t.Skip("the embedded server does not count commands")
	}
	const ops = 30
	for _, subject := range costSubjects {
		commands := func(b *testing.B, of maker) int {
			server := start(b)
			do := of(b, server)
			require.NoError(b, do(b.Context(), 0, 1))
			client := server.Client(b)
			before := redistest.CommandCalls(b, client)
			for n := range ops {
				require.NoError(b, do(b.Context(), 0, int64(2+n)))
			}
			return redistest.CommandCalls(b, client).Since(before)
		}
		testing.Benchmark(func(b *testing.B) {
			// In the background the client looks at the server's settings once, and may make another connection. That is less
			// than half a command for each operation.
			require.InDelta(t, commands(b, subject.of), commands(b, subject.sentRaw(1)), ops/2, subject.name)
		})
	}
}
