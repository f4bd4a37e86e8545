package rlock_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// killing is a step of a run at which its process is killed.
type killing struct {
	step  string
	match func(words []string) bool // the calls of this process whose request or reply is lost; nil: none
	fate  redistest.Fate
	long  bool // fn goes on after the process was killed
	back  bool // the process was only stopped, for longer than its lease, and goes on
}

// requesting matches the call that requests the right to run.
func requesting(words []string) bool { return len(words) > 2 && words[2] == "4" }

var killings = []killing{
	{step: "before the server gets its request", match: requesting, fate: redistest.LoseRequest},
	{step: "before it gets the reply to its request", match: requesting, fate: redistest.LoseReply},
	{step: "while fn runs", long: true},
	{step: "while fn runs, and goes on later", long: true, back: true},
	{step: "when fn has returned, before the answer is stored", match: storing, fate: redistest.LoseRequest},
	{step: "when the answer is stored, before it gets the reply", match: storing, fate: redistest.LoseReply},
	{step: "at any moment"},
}

const (
	untilKilled = time.Second
	killedLease = 3 * time.Second
)

// contestedKey is a key for which the killed process and two others call Do.
type contestedKey struct {
	name  string
	mu    sync.Mutex
	given map[string]int // the answers, and how many callers got each
	runs  int            // of fn
	step  string         // where the process was killed
}

// call calls Do, with a function that works for so long, and counts the answer.
func (k *contestedKey) call(ctx context.Context, once *rlock.Once, work time.Duration, at func(step string)) error {
	at("it waits for the right to run")
	answer, _, err := once.Do(ctx, k.name, "fingerprint", func(context.Context, int64) ([]byte, error) {
		at("fn runs")
		time.Sleep(work)
		at("fn has returned")
		k.mu.Lock()
		defer k.mu.Unlock()
		k.runs++
		return fmt.Appendf(nil, "answer of run %d of %s", k.runs, k.name), nil
	})
	at("Do has returned")
	if err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.given[string(answer)]++
	}
	return err
}

// Each process is killed at its step of each of its runs, while callers of two other processes come for the same keys.
// All callers that get an answer get the same one, as does a caller that comes later.
func TestOnce_ProcessIsKilledAtEachStep_HasOneAnswer(t *testing.T) {
	t.Parallel()
	steps := map[string]int{}
	seeds, keysEach := redistest.Seeds(t, redistest.Sized(1, 2, 30)), redistest.Sized(5, 10, 50)
	for _, seed := range seeds {
		redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
			draw := rand.New(rand.NewPCG(seed, 53))
			opts := rlock.Options{WatchdogTimeout: killedLease}
			alive := newRigs(t, servers[0], 2, opts)
			var all sync.WaitGroup
			var keys []*contestedKey
			for number, d := range killings {
				doomed := dyingProcess(t, servers[0], opts, d)
				for i := range keysEach {
					key := &contestedKey{name: fmt.Sprint(number, "-", i), given: map[string]int{}}
					keys = append(keys, key)
					all.Go(func() { doomed(key, rand.New(rand.NewPCG(seed, uint64(i)))) })
					for _, r := range alive {
						at, work := time.Duration(draw.Int64N(int64(3*untilKilled/2))), time.Duration(draw.Int64N(3e8))
						if draw.IntN(4) > 0 {
							at += 50 * time.Millisecond // the process that is killed comes first
						}
						all.Go(func() {
							time.Sleep(at)
							if err := key.call(within(t), r.locks.Once("once", rlock.OnceOptions{}), work, func(string) {}); err != nil {
								t.Error(key.name, err)
							}
						})
					}
				}
			}
			all.Wait()
			for _, key := range keys {
				step := killings[slices.Index(keys, key)/keysEach].step + ": " + key.step
				steps[step]++
				require.Len(t, key.given, 1, "%s: %s", key.name, step)
				answer, replayed, err := alive[0].locks.Once("once", rlock.OnceOptions{}).Do(within(t), key.name, "fingerprint",
					never(t))
				require.NoError(t, err)
				require.True(t, replayed)
				require.Contains(t, key.given, string(answer), "%s: %s", key.name, step)
			}
		})
	}
	for _, step := range slices.Sorted(maps.Keys(steps)) {
		t.Log(steps[step], "killed", step)
	}
	for _, d := range killings[:len(killings)-1] {
		reached := d.step + ": " + map[bool]string{true: "fn runs", false: "fn has returned"}[d.long]
		if d.match != nil && d.match([]string{"", "", "4"}) {
			reached = d.step + ": it waits for the right to run"
		}
		require.Greater(t, steps[reached], len(seeds)*keysEach/2, reached)
	}
}

// dyingProcess starts a process that is killed after untilKilled, and returns a function that calls Do for a key in
// that process. A process that was killed does nothing and gets nothing more.
func dyingProcess(t *testing.T, server *redistest.Server, opts rlock.Options,
	d killing) func(key *contestedKey, draw *rand.Rand) {
	proxy := redistest.NewProxy(t, server)
	r := newRig(t, proxy.Server(), opts).warmUp(t)
	ctx, cancel := context.WithCancel(context.Background())
	if d.match != nil {
		proxy.Trap(&redistest.Trap{Match: d.match, Fate: d.fate, Every: true})
	}
	over := make(chan struct{})
	time.AfterFunc(untilKilled, func() {
		close(over)
		if d.back {
			stopped(proxy)
			time.Sleep(killedLease + 2*time.Second)
			proxy.Heal()
		} else {
			killed(proxy)
		}
	})
	t.Cleanup(func() { cancel(); r.redis.Close() })
	return func(key *contestedKey, draw *rand.Rand) {
		time.Sleep(time.Duration(draw.Int64N(int64(40 * time.Millisecond))))
		work := time.Duration(draw.Int64N(int64(untilKilled / 2)))
		switch {
		case d.long:
			work += untilKilled
		case d.match == nil:
			work *= 3
		}
		if !d.back {
			go func() { <-over; time.Sleep(10 * time.Second); cancel() }()
		}
		_ = key.call(ctx, r.locks.Once("once", rlock.OnceOptions{}), work, func(step string) {
			select {
			case <-over:
			default:
				key.step = step
			}
		})
	}
}
