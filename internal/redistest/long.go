package redistest

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// LongEnv, set to 1, has tests that take minutes run in full: all seeds, failovers, migrations, the promised numbers.
// Without it each runs a part that shows the same promise, and with -short those that take long all the same are
// skipped, and so is what needs a Cluster or sentinels.
const LongEnv = "REDLATCH_LONG"

// Long reports whether tests are to run in full.
func Long() bool { return os.Getenv(LongEnv) == "1" }

// Sized returns how much a test does: brief with -short, full with LongEnv, otherwise usual.
func Sized[T any](brief, usual, full T) T {
	switch {
	case Long():
		return full
	case testing.Short():
		return brief
	}
	return usual
}

// InFull skips a test that shows at length what another test of its package, shownBy, shows in little, unless tests run
// in full: models and histories of many steps, migrations that go on for seconds, large numbers. CI runs it in full.
func InFull(t testing.TB, shownBy string) {
	t.Helper()
	if !Long() {
		t.Skipf("%s=1 runs this; %s shows it in little", LongEnv, shownBy)
	}
}

// SkipShort skips a test that takes long, with -short: one that waits, walks at random, searches a model, tries each
// instant or a crowd, or that shows that other tests find what is planted. Each takes a tenth of a second and more.
func SkipShort(t testing.TB) {
	t.Helper()
	if testing.Short() && !Long() {
		t.Skip("takes long; leave -short out")
	}
}

// SeedsEnv names the seeds of tests that have some, such as "7,100-199", for running a history or a simulation again.
const SeedsEnv = "REDLATCH_SEEDS"

// Seeds returns the seeds of SeedsEnv; without it, 1 to n.
func Seeds(t testing.TB, n int) []uint64 {
	t.Helper()
	text := os.Getenv(SeedsEnv)
	if text == "" {
		text = "1-" + strconv.Itoa(n)
	}
	var list []uint64
	for _, part := range strings.Split(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, err := strconv.ParseUint(first, 10, 64)
		b, err2 := strconv.ParseUint(last, 10, 64)
		if err != nil || err2 != nil {
			t.Fatalf("redistest: %s=%q: want seeds such as 7,100-199", SeedsEnv, text)
		}
		for ; a <= b; a++ {
			list = append(list, a)
		}
	}
	return list
}
