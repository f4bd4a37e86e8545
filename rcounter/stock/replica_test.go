package stock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// pair is a primary and its replica, which can be cut off and promoted.
type pair struct {
	primary, replica *redistest.Server
	link             *redistest.Wire // between them
	heir             rueidis.Client
}

func newPair(t testing.TB) *pair {
	t.Helper()
	p := &pair{primary: redistest.Start(t, "--hz", "100")} // otherwise WAIT ends with the next 100 ms
	p.link = redistest.NewWire(t, p.primary.Addr())
	host, port, err := net.SplitHostPort(p.link.Addr())
	require.NoError(t, err)
	p.replica = redistest.Start(t, "--replicaof", host, port)
	p.heir = p.replica.Client(t)
	redistest.Eventually(t, 30*time.Second, "the replica is in step", func() bool {
		return strings.Contains(rig.Text(t, p.heir, "INFO", "replication"), "master_link_status:up")
	})
	return p
}

// inParallel does each of n things.
func inParallel(n int, do func(i int)) {
	var all sync.WaitGroup
	next := make(chan int)
	for range 32 {
		all.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// Every verb is called on an order in each state, alone and after every other verb, half of the cases while the only
// replica is cut off. Then the replica is promoted, and the last call is made again. Either no replica had confirmed
// the first call, and the call said so, or both have the same answer.
func TestFailover_EveryAnswer_StandsOrIsNotReplicated(t *testing.T) {
	t.Parallel()
	type cutCase struct {
		state string
		verbs []string
	}
	var cases []cutCase
	for state := range orderStates {
		for verb := range orderVerbs {
			cases = append(cases, cutCase{state, []string{verb}})
			for first := range orderVerbs {
				cases = append(cases, cutCase{state, []string{first, verb}})
			}
		}
	}
	p := newPair(t)
	plain := on(t, p.primary.Client(t), exact)
	name := func(i int) string { return fmt.Sprint("s", i) }
	is := spec(20)
	is.PerUser = 9
	inParallel(len(cases), func(i int) {
		s := plain.Sale(name(i))
		if err := errors.Join(s.Open(ctx, is), orderStates[cases[i].state](s, "o")); err != nil {
			t.Error(cases[i], err)
		}
	})
	rig.Must(t, p.primary.Client(t), "SET", "prepared", "1")
	redistest.Eventually(t, time.Minute, "the replica has it", func() bool {
		return rig.Number(t, p.heir, "EXISTS", "prepared") == 1
	})

	type answered struct {
		stock.Answer
		err error
	}
	first := make([]answered, len(cases))
	half := func(which int, timeout time.Duration) {
		c := on(t, p.primary.Client(t), stock.Options{CallTimeout: 30 * time.Second, MinReplicas: 1, ReplicaTimeout: timeout,
			SoldOutTrust: -1})
		inParallel(len(cases), func(i int) {
			for _, verb := range cases[i].verbs {
				if i%2 != which {
					continue
				}
				a, err := orderVerbs[verb](c.Sale(name(i)), "o")
				if errors.Is(err, errs.ErrNotReplicated) { // a repetition must not confirm what its first call could not
					a, err = orderVerbs[verb](c.Sale(name(i)), "o")
				}
				first[i] = answered{a, err}
			}
		})
	}
	half(0, 20*time.Second)
	p.link.Lead("")
	half(1, time.Millisecond)
	require.NoError(t, p.primary.Process.Kill())
	rig.Must(t, p.heir, "REPLICAOF", "NO", "ONE")
	heir, unconfirmed, wrong := on(t, p.replica.Client(t), exact), 0, []string{}
	var mu sync.Mutex
	inParallel(len(cases), func(i int) {
		verbs, was := cases[i].verbs, first[i]
		a, err := orderVerbs[verbs[len(verbs)-1]](heir.Sale(name(i)), "o")
		was.Again, was.Until, was.Epoch = a.Again, a.Until, a.Epoch
		mu.Lock()
		defer mu.Unlock()
		switch {
		case i%2 == 1 && errors.Is(was.err, errs.ErrNotReplicated):
			unconfirmed++
			if was.Refund(stock.Line{N: 2}) != nil {
				wrong = append(wrong, fmt.Sprint(cases[i], " refunds beside ", was.err))
			}
		case was.err != nil || err != nil || fmt.Sprint(was.Answer) != fmt.Sprint(a):
			wrong = append(wrong, fmt.Sprintf("%v: %+v, and after the failover %+v, %v", cases[i], was, a, err))
		}
	})
	t.Logf("%d cases, %d not replicated", len(cases), unconfirmed)
	require.Empty(t, wrong)
	require.Positive(t, unconfirmed)
}

// A mover waits for the replicas: it neither moves what they do not have nor ends.
func TestKeepLedger_NotReplicated_MovesOnceItIs(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	failed := make(chan error, 1000)
	s := opened(t, on(t, p.primary.Client(t), stock.Options{CallTimeout: 5 * time.Second, MinReplicas: 1,
		ReplicaTimeout: 50 * time.Millisecond, Observer: func(_ context.Context, e errs.Event) context.Context {
			if e.Kind == errs.EventBackgroundFailed {
				failed <- e.Err
			}
			return nil
		}}), "s", spec(100))
	p.link.Lead("")
	_, err := s.Buy(ctx, stock.Order{User: "ann"})
	require.ErrorIs(t, err, errs.ErrNotReplicated)
	keeping, stop := context.WithCancel(ctx)
	b, ended := &book{}, make(chan error, 1)
	go func() { ended <- s.KeepLedger(keeping, time.Millisecond, 10, b.Move) }()
	require.ErrorIs(t, <-failed, errs.ErrNotReplicated)
	time.Sleep(200 * time.Millisecond) // some more tries
	last, _ := b.Continue(ctx, 0, 0)
	require.Zero(t, last)
	p.link.Lead(p.primary.Addr())
	redistest.Eventually(t, time.Minute, "the entry is moved", func() bool {
		entries, _ := b.Order(ctx, "ann")
		return len(entries) == 1
	})
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}
