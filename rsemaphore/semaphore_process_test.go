package rsemaphore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func init() { roles["permit user"] = bePermitUser }

// bePermitUser takes permits and does with them what it is told: "take n", "weigh n", "check", "go"
// (release). It answers "got", "held" or "over: …", and what Release said. It has the heartbeats that it is told, if
// any.
func bePermitUser() error {
	capacity, _ := strconv.Atoi(os.Args[3])
	lease, err := time.ParseDuration(os.Args[4])
	if err != nil {
		return err
	}
	o := rsemaphore.Options{CallTimeout: 10 * time.Second, WatchdogTimeout: lease, PollCap: 50 * time.Millisecond}
	if len(os.Args) > 5 {
		o.Liveness = true
		if o.Heartbeat, err = time.ParseDuration(os.Args[5]); err != nil {
			return err
		}
	}
	_, c, err := connectRole(o)
	if err != nil {
		return err
	}
	sem := c.Semaphore(os.Args[2], capacity).WithLabel("child")
	var p *rsemaphore.Permit
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		verb, n, _ := strings.Cut(in.Text(), " ")
		switch verb {
		case "take":
			many, _ := strconv.Atoi(n)
			p, err = sem.Acquire(context.Background(), many)
			for errors.Is(err, errs.ErrUnknownOutcome) { // the machine is so busy that the lease was over before the reply
				p, err = sem.Acquire(context.Background(), many)
			}
			if err != nil {
				return err
			}
			fmt.Println("got")
		case "weigh":
			many, _ := strconv.Atoi(n)
			w, err := c.WeightedSemaphore(os.Args[2], capacity).Acquire(context.Background(), many)
			if err != nil {
				return err
			}
			p = w
			fmt.Println("got")
		case "check":
			if until := p.Until(); p.Err() == nil && time.Now().Before(until) {
				fmt.Println("held")
			} else {
				fmt.Println("over:", p.Err())
			}
		case "go":
			fmt.Println("released:", p.Release(context.Background()))
		}
	}
	return nil
}

func say(t testing.TB, c *redistest.Child, order string) {
	t.Helper()
	_, err := fmt.Fprintln(c.In, order)
	require.NoError(t, err)
}

func TestAKilledProcessGivesItsPermitsBackAfterOneLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: time.Minute})
	sem := r.c.Semaphore("s", 10)
	c := redistest.Spawn(t, "permit user", s, "s", "10", "1800ms")
	say(t, c, "take 3")
	require.Equal(t, "got", c.Line(t))
	lease := func() time.Duration {
		state, err := sem.Inspect(within(t))
		require.NoError(t, err)
		require.NotEmpty(t, state.Permits)
		return state.Permits[0].Lease
	}
	before := lease()
	redistest.Eventually(t, 20*time.Second, "it is renewed while it lives", func() bool {
		time.Sleep(10 * time.Millisecond)
		now := lease()
		defer func() { before = now }()
		return now > before
	})
	require.Equal(t, [3]int{7, 3, 10}, counts(t, sem))
	c.Signal(t, syscall.SIGKILL)
	_, err := sem.TryAcquire(within(t), 10, 0, 0)
	require.ErrorIs(t, err, errs.ErrNotAcquired)
	state, err := sem.Inspect(within(t))
	require.NoError(t, err)
	require.Equal(t, "child", state.Permits[0].Label)
	left := state.Permits[0].Lease
	began := time.Now()
	release(t, acquire(t, sem, 10)) // all ten, with no call by anybody else
	require.Greater(t, time.Since(began), left-50*time.Millisecond, "not before its lease is over")
	require.Less(t, time.Since(began), 30*time.Second)
}

func TestAStoppedProcessIsToldWhenItRunsAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, patient)
	sem := r.c.Semaphore("s", 4)
	c := redistest.Spawn(t, "permit user", s, "s", "4", "800ms")
	say(t, c, "take 3")
	require.Equal(t, "got", c.Line(t))
	c.Signal(t, syscall.SIGSTOP)
	p := acquire(t, sem, 4)
	c.Signal(t, syscall.SIGCONT)
	say(t, c, "check")
	require.Equal(t, "over", c.Line(t)[:4])
	say(t, c, "go")
	require.Contains(t, c.Line(t), "lost")
	require.Equal(t, [3]int{0, 4, 4}, counts(t, sem), "its late release touches nobody else's permits")
	release(t, p)
}
