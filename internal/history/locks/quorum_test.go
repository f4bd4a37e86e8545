package locks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func TestQuorumHistoriesUnderMixedFaultsAreLinearizable(t *testing.T) {
	each := map[string]election{"as it is": started(t, 3), "planted: one vote": started(t, 3)}
	t.Parallel()
	for name, lock := range map[string]func(p *process, worker int) *rlock.Lock{
		"as it is":          func(p *process, _ int) *rlock.Lock { return p.quorum(t, "q") },
		"planted: one vote": func(p *process, worker int) *rlock.Lock { return p.rigs[worker%3].locks.Reentrant("q") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.HasPrefix(name, "planted") {
				require.NoError(t, recordElections(t, each[name].voting(t), lock, 0))
				return
			}
			// A history with much that is unknown can take the checker forever, and both processors with it. It says nothing
			// then, and another is recorded.
			err := recordElections(t, each[name].voting(t), lock, 10*time.Second)
			for n := 0; n < 4 && err != nil && strings.Contains(err.Error(), "not decided"); n++ {
				err = recordElections(t, each[name].voting(t), lock, 10*time.Second)
			}
			require.ErrorContains(t, err, "not the history of a lock")
		})
	}
}

func recordElections(t *testing.T, servers election, lock func(p *process, worker int) *rlock.Lock,
	patience time.Duration) error {
	log := history.New()
	const clients, workers, most = 4, 2, 50
	enough, stop := context.WithTimeout(context.Background(), 80*time.Second) // on a busy machine
	defer stop()
	atLeast := time.Now().Add(4 * time.Second)
	var processes []*process
	for c := range clients {
		p := servers.behindProxies(t,
			rlock.Options{WatchdogTimeout: 2 * historyLease, CallTimeout: historyTimeout, PollCap: 50 * time.Millisecond})
		redistest.Eventually(t, 20*time.Second, "a first cycle", func() bool {
			return p.quorum(t, fmt.Sprint("warm", c)).Do(within(t), func(context.Context) error { return nil }) == nil
		})
		processes = append(processes, p)
	}
	var wg sync.WaitGroup
	for w := range clients * workers {
		rnd := rand.New(rand.NewPCG(7, uint64(w)))
		q := lock(processes[w%clients], w)
		wg.Go(func() {
			for enough.Err() == nil {
				elect(q, rnd, log, w)
				if time.Now().After(atLeast) && log.Count(history.Acquire, history.OK) >= most {
					stop()
				}
			}
		})
	}
	var faults int
	wg.Go(func() {
		rnd := rand.New(rand.NewPCG(7, 100))
		for redistest.Pause(enough, time.Duration(5+rnd.IntN(40))*time.Millisecond) {
			faults++
			i := rnd.IntN(3)
			proxy := processes[rnd.IntN(clients)].proxies[i]
			d := redistest.Direction(rnd.IntN(2))
			lasts := time.Duration(rnd.IntN(100)) * time.Millisecond
			switch rnd.IntN(9) {
			case 0:
				proxy.Cut()
				lasts = 0
			case 1:
				proxy.Delay(time.Duration(rnd.IntN(30))*time.Millisecond, time.Duration(rnd.IntN(30))*time.Millisecond)
			case 2:
				proxy.Hold(d)
			case 3:
				proxy.BlackHole(d)
				lasts *= 8
			case 4:
				proxy.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: redistest.LoseReply})
			case 5:
				proxy.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: redistest.LoseRequestSilently})
			case 6:
				proxy.SwallowPushes()
			case 7:
				servers[i].Stop(t)
				redistest.Pause(enough, 3*lasts)
				servers[i].Resume(t)
				lasts = 0
			case 8:
				if rnd.IntN(3) == 0 {
					servers[i].Restart(t)
				}
				lasts = 0
			}
			redistest.Pause(enough, lasts)
			proxy.Heal()
		}
	})
	wg.Wait()
	granted := log.Count(history.Acquire, history.OK)
	ops, lost := log.Ops()
	t.Logf("%d operations, %d granted, %d lost, %d faults", len(ops), granted, len(lost), faults)
	require.GreaterOrEqual(t, granted, most)
	require.Greater(t, faults, 10)
	for _, s := range servers {
		redistest.Eventually(t, 20*time.Second, "it is up", func() bool { // the last fault may have restarted it
			_, err := s.TryAsk(t, "PING")
			return err == nil
		})
	}
	if patience == 0 { // nothing is planted: and while the network is well it is not idle
		servers.voting(t)
		o := whenWell
		o.WatchdogTimeout = time.Second // a server that restarted votes when it has been up for that long
		takes := []redistest.Take{taking(processes[0].quorum(t, "q"))}
		for range 2 {
			takes = append(takes, taking(servers.process(t, o).quorum(t, "q")))
		}
		redistest.NotIdle(t, 2*soon, "", takes...)
	}
	for _, s := range servers {
		c := s.Client(t)
		redistest.Eventually(t, 20*time.Second, "nothing is left behind", func() bool { return len(keys(t, c)) == 0 })
	}
	return history.LockModel{Slack: 2 * time.Millisecond, LateAcquire: 2 * time.Millisecond, Late: time.Second,
		Timeout: patience}.Check(log)
}

// elect acquires a Quorum in some way, keeps it for some time, and releases it. A refusal says nothing of a holder:
// votes may have been split.
func elect(q *rlock.Lock, rnd *rand.Rand, log *history.Log, client int) {
	op := history.Op{Client: client, Lock: "q", Owner: log.Owner(), Kind: history.Acquire, Lease: 2 * historyLease,
		Renewed: rnd.IntN(3) > 0}
	leaseTime := op.Lease
	if op.Renewed {
		leaseTime = 0
	}
	var h *rlock.Hold
	got := log.Do(op, func() history.Outcome {
		var err error
		if op.Renewed && rnd.IntN(4) == 0 {
			_, err = redistest.Impatient(rnd, asking(q, &h, new(bool)))
		} else {
			h, err = q.TryLock(context.Background(), time.Duration(rnd.IntN(100))*time.Millisecond, leaseTime)
		}
		if err == nil {
			return history.OK
		}
		return history.Unknown
	})
	if got != history.OK {
		return
	}
	keep := time.NewTimer(time.Duration(rnd.IntN(3000)) * time.Microsecond)
	if rnd.IntN(20) == 0 {
		keep.Reset(op.Lease / 2 * time.Duration(1+rnd.IntN(6)))
	}
	select {
	case <-keep.C:
	case <-h.Done():
	}
	keep.Stop()
	op.Kind = history.Release
	log.Do(op, func() history.Outcome {
		ctx, cancel := context.WithTimeout(context.Background(), 2*historyTimeout)
		defer cancel()
		switch err := h.Unlock(ctx); {
		case err == nil:
			return history.OK
		case errors.Is(err, errs.ErrLost):
			log.Lost(op.Owner, h.Until())
		}
		return history.Unknown
	})
}
