package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

func TestTheConformancePartIsTheTestsOfTheLibraryThatStartAServer(t *testing.T) {
	tests, err := conformance(root)
	require.NoError(t, err)
	for dir, some := range map[string][]string{
		"pubsub":         {"TestAMigratedSlotIsFollowed", "TestDialTellsWhatTryingAgainCannotMend"},
		"rlock":          {"TestLocksGoOnWhenAReplicaTakesOver", "TestAClusterWorksOnEveryNode"},
		"rlock/election": {},
		"rlock/locker":   {},
		"rsemaphore":     {"TestTheScriptsDoWhatTheirTablesSay", "TestPermitsAndLatchesGoOnWhenAReplicaTakesOver"},
		"rcounter":       {}, "rcounter/stock": {}, "rcounter/redpacket": {}, "rcounter/ratelimit": {},
		"internal/script":  {"TestRefusalsOfARealServerAreRetriedAndDoNotRun"},
		"internal/lease":   {},
		"internal/session": {},
		"internal/rights":  {"TestTheACLLineHasNothingToSpare"},
	} {
		found := tests[filepath.Join(root, dir)]
		require.NotEmpty(t, found, dir)
		require.Subset(t, found, some, dir)
	}
	for dir := range tests {
		for _, e := range elsewhere {
			require.False(t, strings.HasPrefix(dir, filepath.Join(root, e)), dir)
		}
	}
}

func TestTheReportSaysWhatWasRunAndWhatDiffers(t *testing.T) {
	read := func(server, events string) *run {
		r := &run{server: server, took: 90 * time.Second, results: map[test]*result{}}
		require.NoError(t, r.read(strings.NewReader(events), io.Discard))
		return r
	}
	event := func(action, name, output string) string {
		return `{"Action":"` + action + `","Package":"github.com/redlatch/redlatch/rlock","Test":"` + name + `","Output":"` +
			output + `"}` + "\n"
	}
	same := event("pass", "TestA", "") + event("pass", "TestA/inner", "") + event("skip", "TestSeldom", "")
	one := read("Redis 1.0.0",
		same+event("pass", "TestB", "")+event("pass", "TestC/inner", "")+event("pass", "TestC", "")+event("pass", "", ""))
	two := read("Valkey 2.0.0", same+event("fail", "TestB", "")+
		event("output", "TestC/inner", "    x_test.go:7: no such thing\\n")+
		event("output", "TestC/inner", "--- SKIP: TestC/inner (0.00s)\\n")+
		event("skip", "TestC/inner", "")+event("pass", "TestC", "")+event("fail", "", ""))
	require.Equal(t, `| server | tests that passed | failed | skipped | seconds |
|---|---|---|---|---|
| Redis 1.0.0 | 3 | 0 | 1 | 90 |
| Valkey 2.0.0 | 2 | 1 | 1 | 90 |

| differs | on | how |
|---|---|---|
| rlock.TestB | Valkey 2.0.0 | failed |
| rlock.TestC/inner | Valkey 2.0.0 | skipped: no such thing |
`, report([]*run{one, two}))

	broken := read("Redis 1.0.0", same+event("fail", "", ""))
	require.Contains(t, report([]*run{broken}), "| rlock | Redis 1.0.0 | failed |",
		"a package that does not build, or whose process ends")
}
