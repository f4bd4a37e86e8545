//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// In the role of redlatch the test's program is redlatch, and so are the guards that it starts.
func TestMain(m *testing.M) {
	completionTime = patience
	redistest.Main(m, map[string]func() error{"redlatch": func() error {
		main()
		return nil
	}})
}

// patience is for what takes a moment, on a machine that is busy.
const patience = 4 * time.Minute

func urlOf(s *redistest.Server) string { return "redis://" + s.Addr() }

// command is redlatch with these arguments, on a server's URL. SELF is what starts it again.
func command(t *testing.T, url string, args ...string) *exec.Cmd {
	t.Helper()
	self := redistest.NoError(os.Executable())(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, self, args...)
	c.WaitDelay = time.Second
	c.Env = append(os.Environ(), redistest.RoleEnv+"=redlatch", "REDLATCH_REDIS="+url, "SELF="+self)
	return c
}

type result struct {
	code     int
	out, err string
}

func run(t *testing.T, url string, args ...string) result {
	t.Helper()
	var out, messages bytes.Buffer
	c := command(t, url, args...)
	c.Stdout, c.Stderr = &out, &messages
	code := codeOf(t, c.Run())
	return result{code, out.String(), messages.String()}
}

func codeOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return 0
}

// running is a redlatch whose command runs.
type running struct {
	*exec.Cmd
	out      *bufio.Reader
	messages *redistest.Logbook
}

// begin starts redlatch and returns when its command has written a line, which must be "ready".
func begin(t *testing.T, url string, args ...string) running {
	t.Helper()
	r := running{Cmd: command(t, url, args...), messages: &redistest.Logbook{}}
	out, in, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { out.Close() })
	r.Stdout, r.Stderr, r.out = in, r.messages, bufio.NewReader(out)
	require.NoError(t, r.Start())
	in.Close()
	t.Cleanup(func() { r.Process.Kill() })
	line, err := r.out.ReadString('\n')
	require.NoError(t, err, r.messages)
	require.Equal(t, "ready\n", line)
	return r
}

// silence waits until nobody is left who could write to the command's stdout.
func (r running) silence(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		io.Copy(io.Discard, r.out)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the command has outlived its hold")
	}
}

func open(t *testing.T, s *redistest.Server) *redlatch.Client {
	t.Helper()
	red, err := redlatch.Open(t.Context(), s.Option(), redlatch.Options{CallTimeout: 5 * time.Second,
		Limiters: func(o *ratelimit.Options) { o.AllowTimeout = 5 * time.Second }})
	require.NoError(t, err)
	t.Cleanup(func() { red.Close(context.Background()) })
	return red
}

// keep releases what a test holds when it is over; until then it can be reached.
func keep(t *testing.T, err error, release func(context.Context) error) {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { release(context.Background()) })
}

func statuses(t *testing.T, r result) (all []status) {
	t.Helper()
	require.Zero(t, r.code, r.err)
	require.NoError(t, json.Unmarshal([]byte(r.out), &all), r.out)
	return all
}
