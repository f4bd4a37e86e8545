package rlock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func init() { roles["queuer"] = beQueuer }

// beQueuer waits for the lock with several clients, each a process of its own in the eyes of the server. It says who
// got it, and lets go of it when it is told to.
func beQueuer() error {
	clients, _ := strconv.Atoi(os.Args[2])
	pollCap, err := time.ParseDuration(os.Args[3])
	if err != nil {
		return err
	}
	orders := make(chan struct{})
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			orders <- struct{}{}
		}
		os.Exit(0) // the test is gone
	}()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range clients {
		_, locks, err := connectRole(rlock.Options{PollCap: pollCap})
		if err != nil {
			return err
		}
		wg.Go(func() {
			hold, err := locks.Reentrant("l").Lock(context.Background())
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Println("failed", err)
				return
			}
			fmt.Println("got", hold.Owner())
			<-orders
			fmt.Println("unlocked", hold.Unlock(context.Background()))
		})
	}
	wg.Wait()
	return nil
}

// startQueuer returns once all of its clients stand in the queue, behind others.
func startQueuer(t *testing.T, s *redistest.Server, r *rig, clients int, pollCap time.Duration,
	others int) *redistest.Child {
	t.Helper()
	c := redistest.Spawn(t, "queuer", s, strconv.Itoa(clients), pollCap.String())
	redistest.Eventually(t, 30*time.Second, "all are in the queue", func() bool {
		return len(queued(t, r.redis, "l")) == others+clients
	})
	return c
}

// killQueuer ends a process and waits until the server has noticed.
func killQueuer(t *testing.T, c *redistest.Child, r *rig, alive int) {
	t.Helper()
	c.Signal(t, syscall.SIGKILL)
	c.Cmd.Wait()
	redistest.Eventually(t, 20*time.Second, "its connections are gone", func() bool {
		ch, err := r.redis.Do(within(t), r.redis.B().PubsubChannels().Pattern("redlatch_grant:*").Build()).AsStrSlice()
		return err == nil && len(ch) <= alive
	})
}

// hears are the processes that hear grants.
func hears(t *testing.T, r *rig) int {
	t.Helper()
	ch, err := r.redis.Do(within(t), r.redis.B().PubsubChannels().Pattern("redlatch_grant:*").Build()).AsStrSlice()
	require.NoError(t, err)
	return len(ch)
}

func TestFiftyKilledWaitersCostNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	live := newRig(t, s, rlock.Options{PollCap: 30 * time.Second})
	h := lock(t, r.locks.Reentrant("l"), within(t))
	dead := []*redistest.Child{startQueuer(t, s, r, 25, 10*time.Second, 0), startQueuer(t, s, r, 25, 10*time.Second, 25)}
	w := queueUp(t, r.redis, live.locks.Reentrant("l"), within(t), 51)
	for _, c := range dead {
		killQueuer(t, c, r, hears(t, r)-25)
	}
	began := time.Now()
	require.NoError(t, h.Unlock(within(t)))
	got := <-w
	require.Less(t, got.at.Sub(began), 20*time.Second, "no poll, and no lease of the dead")
	got.unlock(t)
	require.Empty(t, keys(t, r.redis))
}

func TestTheQueueKeepsItsOrderAroundTheDead(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	h := lock(t, r.locks.Reentrant("l"), within(t))
	var alive []<-chan result
	var owners []string
	var dead []*redistest.Child
	for i := range 3 {
		dead = append(dead, startQueuer(t, s, r, 1, 10*time.Second, 2*i))
		live := newRig(t, s, rlock.Options{PollCap: 30 * time.Second})
		alive = append(alive, queueUp(t, r.redis, live.locks.Reentrant("l"), within(t), 2*i+2))
		owners = append(owners, queued(t, r.redis, "l")[2*i+1])
	}
	for _, c := range dead {
		killQueuer(t, c, r, hears(t, r)-1)
	}
	began := time.Now()
	require.NoError(t, h.Unlock(within(t)))
	for i, w := range alive {
		got := <-w
		require.NoError(t, got.err)
		require.EqualValues(t, owners[i], got.hold.Owner())
		got.unlock(t)
	}
	require.Less(t, time.Since(began), 20*time.Second)
}

// TestStoppedWaitersCostOneLeaseTogether: they are there, but have not looked for long.
func TestStoppedWaitersCostOneLeaseTogether(t *testing.T) {
	t.Parallel()
	const pollCap, clients = 100 * time.Millisecond, 20 // a first lease of 1 s
	for name, wait := range map[string]bool{"just stopped": false, "for long": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			r, live := newRig(t, s, rlock.Options{}), newRig(t, s, rlock.Options{})
			h := lock(t, r.locks.Reentrant("l"), within(t))
			c := startQueuer(t, s, r, clients, pollCap, 0)
			w := queueUp(t, r.redis, live.locks.Reentrant("l"), within(t), clients+1)
			c.Signal(t, syscall.SIGSTOP)
			if wait { // until nobody counts any more
				time.Sleep(4 * pollCap)
			}
			began := time.Now()
			require.NoError(t, h.Unlock(within(t)))
			got := <-w
			require.NoError(t, got.err)
			if wait {
				require.Less(t, got.at.Sub(began), clients/2*time.Second, "nothing, or little on a busy machine")
			} else {
				require.Less(t, got.at.Sub(began), clients/2*time.Second, "a lease or few, not one each")
			}
			// what was granted to them is nothing any more
			owner := string(got.hold.Owner())
			c.Signal(t, syscall.SIGCONT)
			time.Sleep(2 * pollCap)
			require.Equal(t, map[string]string{owner: "1"}, live.hash(t, "l"))
			require.NoError(t, got.hold.Err())
			got.unlock(t)
			// and they are served in their turn
			seen := map[string]bool{owner: true}
			for range clients {
				text := c.Line(t)
				who, ok := strings.CutPrefix(text, "got ")
				require.True(t, ok, text)
				require.False(t, seen[who])
				seen[who] = true
				fmt.Fprintln(c.In)
				// on a very busy machine their first leases may be over before they run again
				require.Regexp(t, "^unlocked (<nil>|.*lost)$", c.Line(t))
			}
			require.NoError(t, c.Cmd.Wait())
			require.Empty(t, keys(t, r.redis))
		})
	}
}

func TestAWaiterKilledWithItsGrantBlocksForItsFirstLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const pollCap = 150 * time.Millisecond
	r := newRig(t, s, rlock.Options{})
	live := newRig(t, s, rlock.Options{PollCap: pollCap})
	h := lock(t, r.locks.Reentrant("l"), within(t))
	c := startQueuer(t, s, r, 1, pollCap, 0)
	doomed := queued(t, r.redis, "l")[0]
	w := queueUp(t, r.redis, live.locks.Reentrant("l"), within(t), 2)
	c.Signal(t, syscall.SIGSTOP)
	require.NoError(t, h.Unlock(within(t)))
	began := time.Now()
	require.Equal(t, map[string]string{doomed: "1"}, r.hash(t, "l"), "granted, and not used")
	left := r.pttl(t, "l")
	c.Signal(t, syscall.SIGKILL)
	got := <-w
	require.NoError(t, got.err)
	require.Greater(t, got.at.Sub(began), left-50*time.Millisecond)
	require.Less(t, got.at.Sub(began), 10*time.Second, "the first lease, not the watchdog's")
	got.unlock(t)
}

func TestAfterAKilledHolderTheFirstInLineIsServed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{})
	holder := redistest.Spawn(t, "holder", s, "1500ms")
	require.Equal(t, "held", holder.Line(t))
	var waiters []<-chan result
	for i := range 3 {
		live := newRig(t, s, rlock.Options{PollCap: time.Second}) // a busy machine's pauses do not cost a place
		waiters = append(waiters, queueUp(t, r.redis, live.locks.Reentrant("l"), within(t), i+1))
	}
	line := queued(t, r.redis, "l")
	holder.Signal(t, syscall.SIGKILL)
	began := time.Now()
	for i, w := range waiters {
		got := <-w
		require.NoError(t, got.err)
		require.EqualValues(t, line[i], got.hold.Owner())
		got.unlock(t)
	}
	require.Less(t, time.Since(began), 10*time.Second)
	require.Empty(t, keys(t, r.redis))
}
