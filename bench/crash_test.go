package bench_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// victimEnv makes the test binary a process that acquires a lock on the server of that address and is to be killed.
const victimEnv = "REDLATCH_BENCH_VICTIM"

// crashLease is what the killed holder's lock lasts at most.
const crashLease = 500 * time.Millisecond

// A process that holds the lock is killed; how long until one that waits has it. ns/op is the mean from the kill;
// %lease relates it to the lease that the dead holder left.
func BenchmarkCrashTakeover(b *testing.B) {
	for _, o := range crashes {
		b.Run(o.name, o.run)
	}
}

var crashes = []workload{{"kill", takeover}}

func beVictim(addr string) error {
	o := rueidis.ClientOption{InitAddress: []string{addr}}
	if os.Getenv(victimEnv+"_EMBEDDED") != "" {
		o.ForceSingleClient, o.DisableCache = true, true
	}
	hub, err := pubsub.Dial(context.Background(), o, pubsub.Options{})
	if err != nil {
		return err
	}
	locks, err := rlock.New(hub, rlock.Options{WatchdogTimeout: crashLease})
	if err != nil {
		return err
	}
	h, err := locks.Reentrant("crash").Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("holding")
	io.Copy(io.Discard, os.Stdin) // ends when the benchmark is gone
	return h.Unlock(context.Background())
}

func takeover(b *testing.B) {
	s := start(b)
	l := open(b, s, rlock.Options{WatchdogTimeout: crashLease}).Reentrant("crash")
	ctx := context.Background()
	var sum time.Duration
	for range b.N {
		kill := victim(b, s)
		acquired := make(chan time.Time, 1)
		var hold *rlock.Hold
		var err error
		go func() {
			hold, err = l.Lock(ctx)
			acquired <- time.Now()
		}()
		time.Sleep(50 * time.Millisecond)
		killed := kill()
		at := <-acquired
		require.NoError(b, err)
		require.NoError(b, hold.Unlock(ctx))
		sum += at.Sub(killed)
	}
	mean := float64(sum) / float64(b.N)
	b.ReportMetric(mean, "ns/op")
	b.ReportMetric(100*mean/float64(crashLease), "%lease")
}

// victim returns when the process holds the lock; kill when it is dead, with the time of its death.
func victim(b *testing.B, s *redistest.Server) (kill func() time.Time) {
	b.Helper()
	self, err := os.Executable()
	require.NoError(b, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), victimEnv+"="+s.Addr())
	if s.Embedded != nil {
		cmd.Env = append(cmd.Env, victimEnv+"_EMBEDDED=1")
	}
	_, err = cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	require.Equal(b, "holding\n", line)
	return func() time.Time {
		cmd.Process.Kill()
		at := time.Now()
		cmd.Wait()
		return at
	}
}
