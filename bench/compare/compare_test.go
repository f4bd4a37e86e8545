package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestChanceIsThatOfTheExactTest(t *testing.T) {
	// tables of the test: two of three and three have no overlap in 2 of 20 orders, and so on
	require.InDelta(t, 0.1, chance([]float64{1, 2, 3}, []float64{4, 5, 6}), 1e-9)
	require.InDelta(t, 2.0/70, chance([]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}), 1e-9)
	require.InDelta(t, 2.0/70, chance([]float64{5, 6, 7, 8}, []float64{1, 2, 3, 4}), 1e-9)
	require.InDelta(t, 2.0/3432, chance([]float64{1, 2, 3, 4, 5, 6, 7}, []float64{8, 9, 10, 11, 12, 13, 14}), 1e-9)
	require.EqualValues(t, 1, chance([]float64{1, 1, 1, 1}, []float64{1, 1, 1, 1}))
	require.Greater(t, chance([]float64{1, 3, 5, 7}, []float64{2, 4, 6, 8}), 0.5)
}

func TestOnlyWhatIsBeyondNoiseIsCalledSlower(t *testing.T) {
	var c comparison
	line := func(name string, ns, allocs string) string {
		return "goos: linux\nBenchmark" + name + "-2   \t 100\t " + ns + " ns/op\t 3.0 jain\t 16 B/op\t " + allocs + " allocs/op\nPASS\n"
	}
	noise := []string{"100", "130", "90", "110"}
	for round, ns := range noise {
		c.add(0, round, line("Same/1", ns, "3")+line("Slow/1", ns, "3")+line("Gone", ns, "3"))
		c.add(1, round, line("Same/1", noise[3-round], "3")+line("Slow/1", ns+"0", "4")+line("New", ns, "3"))
	}
	var out bytes.Buffer
	require.NoError(t, c.write(&out, "old", "new", 0.03))
	text := out.String()
	_, slower, ok := strings.Cut(text, "slower than noise:\n")
	require.True(t, ok, text)
	require.Equal(t, "  Slow/1: ns/op 10.00x\n  Slow/1: allocs/op 1.33x\n", slower)
	require.NotContains(t, text, "Gone")
	require.NotContains(t, text, "New")
	require.NotContains(t, text, "jain")

	out.Reset()
	require.NoError(t, c.write(&out, "old", "new", 20))
	require.Contains(t, out.String(), "nothing got slower than noise")
}

// Two commits of a repository are built and run in turns, and what the second one does more is said.
func TestTwoCommitsAreCompared(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git in PATH; install it to run this test")
	}
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	git := func(args ...string) {
		_, err := run(ctx, dir, "git", append([]string{"-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "commit.gpgsign=false"}, args...)...)
		require.NoError(t, err)
	}
	file := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	bench := func(commands string) string {
		return "package b\nimport \"testing\"\nfunc BenchmarkOne(b *testing.B) {\n\tb.Run(\"1\", func(b *testing.B) { for range b.N {}; b.ReportMetric(" + commands +
			", \"cmds/op\") })\n\tb.Run(\"2\", func(b *testing.B) {})\n}\nfunc BenchmarkTwo(b *testing.B) {}\n"
	}
	git("init", "-q")
	file("go.mod", "module b\n\ngo 1.24\n")
	file("b_test.go", bench("2"))
	git("add", ".")
	git("commit", "-q", "-m", "one")
	file("b_test.go", bench("3"))
	var out, progress bytes.Buffer
	require.NoError(t, command(ctx, []string{"-C", dir, "-in", ".", "-bench", "One/1", "-benchtime", "1us", "-rounds", "4"}, &out, &progress))
	require.Contains(t, out.String(), "  One/1: cmds/op 1.50x\n")
	require.NotContains(t, out.String(), "One/2")
	require.Equal(t, 8, strings.Count(progress.String(), " round "))
	require.NotContains(t, progress.String(), "BenchmarkTwo")

	git("commit", "-q", "-a", "-m", "two")
	out.Reset()
	require.NoError(t, command(ctx, []string{"-C", dir, "-in", ".", "-bench", "One", "-benchtime", "1us", "-rounds", "4", "-old", "HEAD", "-new", "HEAD~1"}, &out, &progress))
	require.Regexp(t, `One/1 +cmds/op +3 +2 +0\.67x .*faster`, out.String())

	require.ErrorContains(t, command(ctx, []string{"-C", dir, "-in", ".", "-bench", "Three", "-rounds", "4"}, &out, &progress), "no benchmark")
	require.ErrorContains(t, command(ctx, []string{"-C", dir, "-old", "nowhere"}, &out, &progress), "nowhere")
}

func TestACommandThatCannotBeIsRefused(t *testing.T) {
	for want, args := range map[string]string{
		"rounds must be 4":       "-rounds 3",
		"unexpected":             "everything",
		"flag provided but not ": "-loud",
	} {
		var said bytes.Buffer
		require.ErrorContains(t, command(context.Background(), strings.Fields(args), &said, &said), want)
	}
}
