package redlatchprom_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchprom "github.com/redlatch/redlatch/contrib/prometheus"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
)

func TestMain(m *testing.M) { redistest.Main(m, nil) }

// first is the part of a name before its first colon.
func first(_, name string) string {
	class, _, _ := strings.Cut(name, ":")
	return class
}

// open opens a client on an embedded server, observed by a Collector.
func open(t *testing.T) (*redlatchprom.Collector, *redlatch.Client) {
	t.Helper()
	c := redlatchprom.New(redlatchprom.Options{Class: first})
	red, err := redlatch.Open(redistest.Embedded(t).Option(), c.Instrument(redlatch.Options{CallTimeout: 20 * time.Second}))
	require.NoError(t, err)
	t.Cleanup(func() { red.Close(context.Background()) })
	c.Watch(red)
	return c, red
}

// value is that of one series, with its labels in the order of their names; 0 if there is none.
func value(t *testing.T, c *redlatchprom.Collector, name string, labels ...string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			var have []string
			for _, l := range m.Label {
				have = append(have, l.GetName()+"="+l.GetValue())
			}
			if strings.Join(have, " ") == strings.Join(labels, " ") {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestLocksAndPermitsAreCounted(t *testing.T) {
	t.Parallel()
	c, red := open(t)
	ctx := within(t)
	lock := red.Locks().Reentrant("order:1")
	hold, err := lock.Lock(ctx)
	require.NoError(t, err)
	_, err = lock.TryLock(ctx, 0, 0)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = lock.Lock(gone)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, value(t, c, "redlatch_held", "kind=lock"))

	waiter := make(chan error)
	go func() { waiter <- lock.Do(ctx, func(context.Context) error { return nil }) }()
	require.Eventually(t, func() bool { return value(t, c, "redlatch_waiting", "kind=lock") == 1 }, 30*time.Second, time.Millisecond)
	require.NoError(t, hold.Unlock(ctx))
	require.NoError(t, <-waiter)
	require.EqualValues(t, 0, value(t, c, "redlatch_waiting", "kind=lock"))
	require.EqualValues(t, 0, value(t, c, "redlatch_held", "kind=lock"))
	require.EqualValues(t, 2, value(t, c, "redlatch_acquisitions_total", "class=order", "kind=lock", "result=acquired"))
	require.EqualValues(t, 1, value(t, c, "redlatch_acquisitions_total", "class=order", "kind=lock", "result=not_acquired"))
	require.EqualValues(t, 1, value(t, c, "redlatch_acquisitions_total", "class=order", "kind=lock", "result=canceled"))
	require.EqualValues(t, 2, value(t, c, "redlatch_acquire_seconds", "acquired=true", "class=order", "kind=lock"))
	require.EqualValues(t, 2, value(t, c, "redlatch_acquire_seconds", "acquired=false", "class=order", "kind=lock"))
	require.EqualValues(t, 2, value(t, c, "redlatch_hold_seconds", "class=order", "kind=lock"))
	require.EqualValues(t, 2, value(t, c, "redlatch_releases_total", "class=order", "kind=lock", "result=released"))

	pool := red.Semaphores().Semaphore("pool", 3)
	require.NoError(t, pool.Do(ctx, 2, func(context.Context) error {
		require.EqualValues(t, 1, value(t, c, "redlatch_held", "kind=semaphore"))
		return nil
	}))
	require.EqualValues(t, 1, value(t, c, "redlatch_acquisitions_total", "class=pool", "kind=semaphore", "result=acquired"))
	require.EqualValues(t, 1, value(t, c, "redlatch_hold_seconds", "class=pool", "kind=semaphore"))
	_, err = red.Semaphores().CyclicBarrier("barrier", 1).Await(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, value(t, c, "redlatch_await_seconds", "class=barrier", "result=reached"))
}

func TestALossIsCountedByItsCauseAndWasZeroBefore(t *testing.T) {
	t.Parallel()
	c, red := open(t)
	ctx := within(t)
	lock := red.Locks().Reentrant("job")
	hold, err := lock.Lock(ctx)
	require.NoError(t, err)
	require.Equal(t, 8, testutil.CollectAndCount(c, "redlatch_losses_total"), "four causes of job, and of others")
	require.EqualValues(t, 0, value(t, c, "redlatch_losses_total", "cause=lost", "class=job", "kind=lock"))
	_, err = lock.ForceUnlock(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, hold.Extend(ctx, time.Minute), rlock.ErrLost)
	require.EqualValues(t, 1, value(t, c, "redlatch_losses_total", "cause=lost", "class=job", "kind=lock"))
	require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLost)
	require.EqualValues(t, 1, value(t, c, "redlatch_releases_total", "class=job", "kind=lock", "result=lost"))
}

func TestClaimsAndWritesAreCounted(t *testing.T) {
	t.Parallel()
	c, red := open(t)
	ctx := within(t)
	sale := red.Stocks().Stock("sale:1")
	_, err := sale.Open(ctx, stock.Spec{Limit: 2, PerUser: 2, OpenFor: time.Hour})
	require.NoError(t, err)
	for _, who := range []string{"ann", "ann", "bob"} {
		_, err := sale.ClaimOnce(ctx, "request of "+who, who, 1)
		require.NoError(t, err)
	}
	for range 3 {
		_, err := sale.ClaimAny(ctx, 1) // the server says that it is sold out, once
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, value(t, c, "redlatch_claims_total", "class=sale", "kind=stock", "outcome=granted"))
	require.EqualValues(t, 1, value(t, c, "redlatch_claims_total", "class=sale", "kind=stock", "outcome=replayed"))
	require.EqualValues(t, 2, value(t, c, "redlatch_claimed_units_total", "class=sale", "kind=stock"))
	require.EqualValues(t, 3, value(t, c, "redlatch_claims_total", "class=sale", "kind=stock", "outcome=sold_out")+
		value(t, c, "redlatch_local_answers_total", "class=sale", "outcome=sold_out"))

	packet := red.RedPackets().Packet("gift")
	_, err = packet.Send(ctx, redpacket.Spec{Total: 70, Shares: 1, OpenFor: time.Hour})
	require.NoError(t, err)
	_, err = packet.Grab(ctx, "ann")
	require.NoError(t, err)
	require.EqualValues(t, 70, value(t, c, "redlatch_claimed_units_total", "class=gift", "kind=redpacket"))

	visits := red.Counters().Counter("visits", rcounter.CounterOptions{})
	_, err = visits.Incr(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, value(t, c, "redlatch_writes_total", "class=visits", "result=written"))
	require.EqualValues(t, 1, value(t, c, "redlatch_write_seconds", "class=visits"))
}

func TestMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	c := everything()
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestAnErrorIsCountedAsWhatItSaysOfTheOutcome(t *testing.T) {
	t.Parallel()
	c := redlatchprom.New(redlatchprom.Options{})
	locks := c.Locks()
	for err, want := range map[error]string{
		rlock.ErrNotAcquired: "not_acquired",
		errors.Join(rlock.ErrNotAcquired, context.Canceled):     "canceled",
		errors.Join(rlock.ErrNotAcquired, rlock.ErrUnavailable): "not_acquired",
		errors.Join(context.Canceled, rlock.ErrLost):            "lost",
		rlock.ErrLost:          "lost",
		rlock.ErrMaxHold:       "max_hold",
		rlock.ErrNotReplicated: "not_replicated",
		rlock.ErrUnavailable:   "unavailable",
		fmt.Errorf("x: %w", rlock.ErrUnknownOutcome): "unknown_outcome",
		rlock.ErrDenied:          "denied",
		rlock.ErrClosed:          "closed",
		context.DeadlineExceeded: "timeout",
		errors.New("?"):          "other",
		rlock.ErrWrongType:       "wrong_type",
		errors.Join(rlock.ErrUnavailable, context.DeadlineExceeded): "unavailable",
	} {
		before := value(t, c, "redlatch_acquisitions_total", "class=all", "kind=lock", "result="+want)
		locks.NotAcquired(context.Background(), "l", 0, err)
		require.EqualValues(t, 1, value(t, c, "redlatch_acquisitions_total", "class=all", "kind=lock", "result="+want)-before, "%v", err)
	}
}

func TestClassesAreBounded(t *testing.T) {
	t.Parallel()
	c := redlatchprom.New(redlatchprom.Options{MaxClasses: 3, Class: func(_, name string) string { return name }})
	locks, counters := c.Locks(), c.Counters()
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { locks.Acquired(context.Background(), fmt.Sprint("name ", i), 0) })
	}
	all.Wait()
	counters.Written(context.Background(), "another kind", 0, nil)
	counters.Written(context.Background(), "", 0, nil)
	require.Equal(t, 3+1, testutil.CollectAndCount(c, "redlatch_acquisitions_total"))
	require.EqualValues(t, 97, value(t, c, "redlatch_acquisitions_total", "class=other", "kind=lock", "result=acquired"))
	require.EqualValues(t, 1, value(t, c, "redlatch_writes_total", "class=another kind", "result=written"))
	require.EqualValues(t, 1, value(t, c, "redlatch_writes_total", "class=other", "result=written"))
}

// everything is a Collector that was told of every kind of event, so that no metric is without a series.
func everything() *redlatchprom.Collector {
	c, ctx, err := redlatchprom.New(redlatchprom.Options{Class: first}), context.Background(), errors.New("x")
	locks, semaphores, stocks, hub := c.Locks(), c.Semaphores(), c.Stocks(), c.Hub()
	locks.Acquired(ctx, "l", 1)
	locks.NotAcquired(ctx, "l", 1, err)
	locks.Released(ctx, "l", 1, nil)
	locks.Renewed(ctx, "l", err)
	locks.Ended(ctx, "l", rlock.ErrLost)
	locks.Woken(ctx, "l", true)
	locks.TakenOver(ctx, "l", 1)
	semaphores.Acquired(ctx, "s", 1, 1)
	semaphores.NotAcquired(ctx, "s", 1, 1, err)
	semaphores.Released(ctx, "s", 1, -1, nil)
	semaphores.Waited(ctx, "s", 1, nil)
	semaphores.Renewed(ctx, "s", nil)
	semaphores.Ended(ctx, "s", rlock.ErrWrongType)
	semaphores.Woken(ctx, "s", false)
	stocks.Claimed(ctx, "st", stock.Granted, 1, 1, nil)
	stocks.AnsweredLocally(ctx, "st", stock.SoldOut)
	stocks.BackgroundFailed(ctx, "st", err)
	c.RedPackets().Claimed(ctx, "p", redpacket.Granted, 1, 1, nil)
	c.Counters().Written(ctx, "c", 1, nil)
	c.Limiters().BackgroundFailed(ctx, "r", err)
	hub.Subscribed("c", true)
	hub.Refused("c", err)
	hub.Lost("n", err)
	hub.Dropped("c")
	return c
}

// described are the names of the metrics that a Collector describes.
func described(c *redlatchprom.Collector) (names []string) {
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	to := make(chan *prometheus.Desc, 100)
	c.Describe(to)
	close(to)
	for d := range to {
		names = append(names, name.FindStringSubmatch(d.String())[1])
	}
	return names
}
