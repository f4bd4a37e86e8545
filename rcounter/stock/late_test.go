package stock_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// gate holds script calls back while it is shut.
type gate struct {
	rueidis.Client
	mu   sync.Mutex
	shut chan struct{}
	held int
}

func (g *gate) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	g.mu.Lock()
	shut := g.shut
	if shut != nil && cmd.Commands()[0] == "EVALSHA" {
		g.held++
		g.mu.Unlock()
		<-shut
	} else {
		g.mu.Unlock()
	}
	return g.Client.Do(ctx, cmd)
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

func TestActs_CallerGaveUp_AreNotDoneAfterwards(t *testing.T) {
	t.Parallel()
	g := &gate{Client: redistest.Start(t).Client(t)}
	s := opened(t, on(t, g, stock.Options{CallTimeout: 20 * time.Second, BatchWindow: 10 * time.Second}), "s", 100)
	_, err := s.Claim(ctx, "first", stock.Request{ID: "first", N: 1}) // it tells the server's time
	require.NoError(t, err)
	g.mu.Lock()
	g.shut = make(chan struct{})
	g.mu.Unlock()

	var patient sync.WaitGroup
	claim := func(id string) {
		patient.Go(func() {
			got, err := s.Claim(ctx, id, stock.Request{ID: id, N: 1})
			if err != nil || got.Outcome != stock.Granted {
				t.Error(id, got, err)
			}
		})
	}
	for i := range 8 { // these are sent alone
		claim("alone" + strconv.Itoa(i))
	}
	require.Eventually(t, func() bool { return g.count() == 8 }, 20*time.Second, time.Millisecond)
	hasty, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	gaveUp := make(chan error, 1)
	go func() {
		_, err := s.Claim(hasty, "hasty", stock.Request{ID: "hasty", N: 1})
		gaveUp <- err
	}()
	for i := range 7 { // with these it shares a call, which is half of what is under way
		claim("shared" + strconv.Itoa(i))
	}
	require.ErrorIs(t, <-gaveUp, errs.ErrUnknownOutcome, "its call was sent")
	require.Equal(t, 9, g.count())
	until, _ := hasty.Deadline()
	require.Eventually(t, func() bool { return time.Since(until) > 20*time.Millisecond }, 20*time.Second, time.Millisecond)
	close(g.shut)
	patient.Wait()

	found, err := s.Lookup(stock.Fresh(ctx), stock.Units{Request: "hasty"})
	require.NoError(t, err)
	require.Zero(t, found.Outcome, "it was told that nothing is known, and nothing is done afterwards")
	require.Equal(t, "16", hash(t, g.Client, "rc:{s}")["sold"])
}

func TestActs_OneLate_OthersAreDone(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client(t)
	for verb, deed := range map[string]stock.Deed{
		"ClaimOnce":  {Verb: "O", ID: "new", Claimant: "u", N: 1},
		"ClaimUpTo":  {Verb: "U", ID: "new", Claimant: "u", N: 1},
		"Reserve":    {Verb: "R", ID: "new", Claimant: "u", N: 1, TTL: time.Hour},
		"UpTo":       {Verb: "V", ID: "new", Claimant: "u", N: 1, TTL: time.Hour},
		"Confirm":    {Verb: "C", ID: "held"},
		"Part":       {Verb: "C", ID: "held", N: 1},
		"Unknown":    {Verb: "C", ID: "new"},
		"Extend":     {Verb: "E", ID: "held", TTL: 2 * time.Hour},
		"Cancel":     {Verb: "X", ID: "held"},
		"Forbid":     {Verb: "X", ID: "new"},
		"ReturnOnce": {Verb: "B", ID: "sold"},
	} {
		s := on(t, c, exact).Stock(verb)
		_, err := s.Open(ctx, stock.Spec{Limit: 20, PerUser: 5, OpenFor: time.Hour})
		require.NoError(t, err)
		_, err = s.ActsAs(ctx, "before", stock.Deed{Verb: "R", ID: "held", Claimant: "a", N: 2, TTL: time.Hour},
			stock.Deed{Verb: "O", ID: "sold", Claimant: "b", N: 1})
		require.NoError(t, err)
		before := hash(t, c, "rc:{"+verb+"}:r")
		deed.Until = time.Now().Add(-time.Second)
		for range 2 { // as a script that runs twice
			got, err := s.ActsAs(ctx, "call", stock.Deed{Verb: "O", ID: "one", Claimant: "x", N: 1}, deed,
				stock.Deed{Verb: "O", ID: "two", Claimant: "y", N: 1})
			require.NoError(t, err, verb)
			require.ErrorIs(t, got[1].Err, errs.ErrUnknownOutcome, verb)
			require.Equal(t, stock.Granted, got[0].Grant.Outcome, verb)
			require.Equal(t, stock.Granted, got[2].Grant.Outcome, verb)
		}
		after := hash(t, c, "rc:{"+verb+"}:r")
		for _, field := range []string{"r:one", "r:two", "u:x", "u:y"} {
			require.Contains(t, after, field, verb)
			delete(after, field)
		}
		require.Equal(t, before, after, verb)
	}
}
