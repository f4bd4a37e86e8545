package rsemaphore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func tokenOf(t *testing.T, p *rsemaphore.Permit) int64 {
	t.Helper()
	token, ok := p.Token()
	require.True(t, ok)
	return token
}

func TestToken_ExclusiveSemaphore_Grows(t *testing.T) {
	redistest.Simulated(t, 1, func(t *testing.T, servers []*redistest.Server) {
		s := servers[0]
		a, b := newRig(t, s, rsemaphore.Options{}), newRig(t, s, rsemaphore.Options{})
		mine, others := a.c.Semaphore("s", 1).Fenced(), b.c.Semaphore("s", 1).Fenced()
		last := int64(0)
		grows := func(why string, p *rsemaphore.Permit) *rsemaphore.Permit {
			t.Helper()
			token := tokenOf(t, p)
			require.Greater(t, token, last, why)
			last = token
			return p
		}
		for range 3 {
			release(t, grows("released", acquire(t, mine, 1)))
			release(t, grows("released", acquire(t, others, 1)))
		}
		p := redistest.NoError(mine.TryAcquire(within(t), 1, 0, 50*time.Millisecond))(t)
		grows("of a lease", p)
		release(t, grows("expired", acquire(t, others, 1)))
		_ = p.Release(within(t))

		s.Embedded.Set("{s}:token", "9000000000000000")
		last = 9000000000000000
		release(t, grows("the clock was set back", acquire(t, mine, 1)))
		require.Positive(t, s.Embedded.TTL("{s}:token"))
		s.Embedded.Del("{s}:token")
		last = 0
		before := acquire(t, mine, 1)
		grows("before the data were lost", before)
		s.Embedded.FlushAll()
		time.Sleep(time.Millisecond) // the clock stands still here
		release(t, grows("after", acquire(t, others, 1)))
		_ = before.Release(within(t))

		held := grows("waited for", acquire(t, mine, 1))
		var wg sync.WaitGroup
		tokens := make(chan int64, 20)
		for i := range 20 { // in calls for several, and handed over
			wg.Go(func() {
				sem := mine
				if i%2 == 0 {
					sem = others
				}
				p, err := sem.Acquire(within(t), 1)
				if err != nil {
					t.Error(err)
					return
				}
				token, _ := p.Token()
				tokens <- token // it holds the permit
				if err := p.Release(within(t)); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		release(t, held)
		wg.Wait()
		close(tokens)
		for token := range tokens {
			require.Greater(t, token, last, "handed over")
			last = token
		}
	})
}

func TestToken_ReplyLost_IsMadeAnew(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	r := newRig(t, p.Server(), rsemaphore.Options{CallTimeout: 300 * time.Millisecond, RetryTimeout: 20 * time.Second})
	direct := newRig(t, s, rsemaphore.Options{})
	release(t, acquire(t, r.c.Semaphore("other", 1).Fenced(), 1)) // the scripts are loaded
	last := int64(0)
	for _, fate := range []redistest.Fate{redistest.LoseReply, redistest.LoseRequest} {
		trap := p.Trap(&redistest.Trap{Match: redistest.With("{s}:token"), Fate: fate})
		permit := acquire(t, r.c.Semaphore("s", 1).Fenced(), 1)
		trap.Wait(t)
		token := tokenOf(t, permit)
		require.Greater(t, token, last)
		require.Equal(t, token, direct.number(t, "GET", "{s}:token"), "the one that the holder has is the last")
		last = token
		release(t, permit)
	}

	// One that never gets a token keeps nothing.
	r = newRig(t, p.Server(),
		rsemaphore.Options{CallTimeout: 100 * time.Millisecond, RetryTimeout: 100 * time.Millisecond})
	p.Trap(&redistest.Trap{Match: redistest.With("{s}:token"), Fate: redistest.LoseReplySilently})
	_, err := r.c.Semaphore("s", 1).Fenced().Acquire(within(t), 1)
	require.ErrorIs(t, err, errs.ErrUnknownOutcome)
	redistest.Eventually(t, 20*time.Second, "given back, long before the lease of 30 s", func() bool {
		return counts(t, direct.c.Semaphore("s", 1)) == [3]int{1, 0, 1}
	})
	permit := acquire(t, direct.c.Semaphore("s", 1).Fenced(), 1)
	require.Greater(t, tokenOf(t, permit), last)
	release(t, permit)
}

func TestFenced_SeveralPermits_AreRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rsemaphore.Options{})
	sem := r.c.Semaphore("s", 1)
	p := acquire(t, sem, 1)
	_, ok := p.Token()
	require.False(t, ok)
	release(t, p)

	redistest.NoError(sem.Resize(within(t), 2))(t)
	_, err := sem.Fenced().Acquire(within(t), 1)
	require.ErrorIs(t, err, rsemaphore.ErrCapacityMismatch)
	require.ErrorContains(t, err, `"s" has 2, not 1`)
	redistest.Eventually(t, 20*time.Second, "it keeps nothing", func() bool {
		return counts(t, sem)[1] == 0
	})
	two := acquire(t, sem, 2)
	redistest.NoError(sem.Resize(within(t), 1))(t)
	release(t, two)
	p = acquire(t, sem.Fenced(), 1)
	require.Positive(t, tokenOf(t, p))
	release(t, p)
}

func TestToken_PermitLostBefore_IsNotMade(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	r, direct := newRig(t, p.Server(), rsemaphore.Options{}), newRig(t, s, rsemaphore.Options{})
	release(t, acquire(t, r.c.Semaphore("s", 1).Fenced(), 1))
	before := direct.text(t, "GET", "{s}:token")
	let := make(chan struct{})
	trap := p.Trap(&redistest.Trap{Match: redistest.With("{s}:token"), Fate: redistest.HoldRequest,
		Release: let})
	done := make(chan error, 1)
	go func() {
		_, err := r.c.Semaphore("s", 1).Fenced().Acquire(within(t), 1)
		done <- err
	}()
	trap.Wait(t)
	direct.must(t, "DEL", "{s}:timeout")
	close(let)
	require.ErrorIs(t, <-done, errs.ErrUnavailable)
	require.Equal(t, before, direct.text(t, "GET", "{s}:token"))
}
