//go:build unix

package main

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// The test binary is also every process of the shop.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role, os.Stdin))
	}
	redistest.Main(m, nil)
}

// output is written by several goroutines.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// sells runs the program and returns its exit status and its report.
func sells(t *testing.T, tamper func(*evidence), args ...string) (status int, report string) {
	t.Helper()
	var out, messages output
	p := program{stdout: &out, stderr: &messages, tamper: tamper}
	status = p.run(t.Context(), append([]string{"-workers", "2", "-movers", "2", "-hold", "1s"}, args...))
	t.Logf("%v\n%s%s", args, messages.String(), out.String())
	return status, out.String()
}

func TestASaleAddsUp(t *testing.T) {
	t.Parallel()
	status, report := sells(t, nil, "-duration", "2s", "-customers", "120", "-units", "40")
	require.Equal(t, exitOK, status)
	require.Contains(t, report, "What became of the customers")
	require.NotContains(t, report, "What went wrong")
}

func TestASaleAddsUpWhateverGoesWrong(t *testing.T) {
	t.Parallel()
	status, report := sells(t, nil, "-chaos", "-duration", "4s", "-customers", "120", "-units", "40")
	require.Equal(t, exitOK, status)
	require.Contains(t, report, restart)
}

func TestASaleAddsUpOnAServerThatIsKilled(t *testing.T) {
	t.Parallel()
	redistest.NeedServer(t)
	status, report := sells(t, nil, "-chaos", "-redis-server", "-duration", "4s", "-customers", "120", "-units", "40",
		"-seed", "2")
	require.Equal(t, exitOK, status)
	require.Contains(t, report, restart)
}

func TestASaleThatDoesNotAddUpFails(t *testing.T) {
	t.Parallel()
	status, report := sells(t, missOne, "-duration", "1s", "-customers", "20", "-units", "10")
	require.Equal(t, exitBad, status)
	require.Contains(t, report, "WRONG  sold = database")
	require.Contains(t, report, `answered "sold", and is "not" in the database`)
}

// missOne takes an order that was sold out of what the database says.
func missOne(e *evidence) {
	e.orders = slices.Delete(e.orders, 0, 1+slices.IndexFunc(e.orders, func(o orderRow) bool { return o.State == sold }))
}

func TestBadFlagsAreRefusedByName(t *testing.T) {
	for flag, args := range map[string][]string{
		"-units 0":       {"-units", "0"},
		"-workers 99":    {"-workers", "99"},
		"-duration 10ms": {"-duration", "10ms"},
		`"now"`:          {"now"},
		"-sale":          {"-sale"},
	} {
		var out, messages output
		require.Equal(t, exitUsage, program{stdout: &out, stderr: &messages}.run(t.Context(), args))
		require.Contains(t, messages.String(), flag)
		require.Empty(t, out.String())
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var out, messages output
	require.Equal(t, exitOK, program{stdout: &out, stderr: &messages}.run(t.Context(), []string{"-help"}))
	for _, flag := range []string{"chaos", "redis-server", "duration", "units", "customers", "workers", "movers", "hold",
		"seed", "page", "keep"} {
		require.Contains(t, out.String(), "\n  -"+flag+" ")
	}
}
