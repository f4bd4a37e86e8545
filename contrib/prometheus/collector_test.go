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
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// first is the part of a name before its first colon.
func first(_, name string) string {
	class, _, _ := strings.Cut(name, ":")
	return class
}

// open opens a client on an embedded server, observed by a Collector.
func open(t *testing.T) (*redlatchprom.Collector, *redlatch.Client) {
	t.Helper()
	c := redlatchprom.New(redlatchprom.Options{Class: first})
	red := redlatchtest.New(t).Open(c.Instrument(redlatch.Options{CallTimeout: 20 * time.Second}))
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

func TestCollector_LocksAndPermits_AreCounted(t *testing.T) {
	t.Parallel()
	c, red := open(t)
	ctx := t.Context()
	lock := red.Locks().Reentrant("order:1")
	hold, err := lock.Lock(ctx)
	require.NoError(t, err)
	_, err = lock.TryLock(ctx, 0, 0)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = lock.Lock(gone)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, value(t, c, "redlatch_held", "kind=lock"))

	waiter := make(chan error)
	go func() { waiter <- lock.Do(ctx, func(context.Context) error { return nil }) }()
	require.Eventually(t, func() bool {
		return value(t, c, "redlatch_waiting", "kind=lock") == 1
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, hold.Unlock(ctx))
	require.NoError(t, <-waiter)
	require.EqualValues(t, 0, value(t, c, "redlatch_waiting", "kind=lock"))
	require.EqualValues(t, 0, value(t, c, "redlatch_held", "kind=lock"))
	require.EqualValues(t, 2, value(t, c, "redlatch_acquisitions_total", "class=order", "kind=lock", "result=acquired"))
	require.EqualValues(t, 1,
		value(t, c, "redlatch_acquisitions_total", "class=order", "kind=lock", "result=not_acquired"))
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
	require.EqualValues(t, 1,
		value(t, c, "redlatch_acquisitions_total", "class=pool", "kind=semaphore", "result=acquired"))
	require.EqualValues(t, 1, value(t, c, "redlatch_hold_seconds", "class=pool", "kind=semaphore"))
	_, err = red.Semaphores().CyclicBarrier("barrier", 1).Await(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, value(t, c, "redlatch_await_seconds", "class=barrier", "result=reached"))
}

func TestCollector_Loss_IsCountedByCauseFromZero(t *testing.T) {
	t.Parallel()
	c, red := open(t)
	ctx := t.Context()
	lock := red.Locks().Reentrant("job")
	hold, err := lock.Lock(ctx)
	require.NoError(t, err)
	require.Equal(t, 8, testutil.CollectAndCount(c, "redlatch_losses_total"), "four causes of job, and of others")
	require.EqualValues(t, 0, value(t, c, "redlatch_losses_total", "cause=lost", "class=job", "kind=lock"))
	_, err = lock.ForceUnlock(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, hold.Extend(ctx, time.Minute), redlatch.ErrLost)
	require.EqualValues(t, 1, value(t, c, "redlatch_losses_total", "cause=lost", "class=job", "kind=lock"))
	require.ErrorIs(t, hold.Unlock(ctx), redlatch.ErrLost)
	require.EqualValues(t, 1, value(t, c, "redlatch_releases_total", "class=job", "kind=lock", "result=lost"))
}

func TestCollector_ClaimsAndWrites_AreCounted(t *testing.T) {
	t.Parallel()
	c, red := open(t)
	ctx := t.Context()
	sale := red.Stocks().Stock("sale:1")
	_, err := sale.Open(ctx, stock.Spec{Limit: 2, PerUser: 2, OpenFor: time.Hour})
	require.NoError(t, err)
	for _, who := range []string{"ann", "ann", "bob"} {
		_, err := sale.Claim(ctx, who, stock.Request{ID: "request of " + who, N: 1})
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

func TestCollector_AllMetrics_FollowTheConventions(t *testing.T) {
	t.Parallel()
	c := everything()
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestCollector_ManyNames_HaveBoundedClasses(t *testing.T) {
	t.Parallel()
	c := redlatchprom.New(redlatchprom.Options{MaxClasses: 3, Class: func(_, name string) string { return name }})
	locks, counters := c.Locks(), c.Counters()
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			locks(context.Background(), rlock.Event{Kind: rlock.EventAcquired, Name: fmt.Sprint("name ", i)})
		})
	}
	all.Wait()
	counters(context.Background(), rcounter.Event{Name: "another kind"})
	counters(context.Background(), rcounter.Event{})
	require.Equal(t, 3+1, testutil.CollectAndCount(c, "redlatch_acquisitions_total"))
	require.EqualValues(t, 97, value(t, c, "redlatch_acquisitions_total", "class=other", "kind=lock", "result=acquired"))
	require.EqualValues(t, 1, value(t, c, "redlatch_writes_total", "class=another kind", "result=written"))
	require.EqualValues(t, 1, value(t, c, "redlatch_writes_total", "class=other", "result=written"))
}

// everything is a Collector that was told of every kind of event, so that no metric is without a series.
func everything() *redlatchprom.Collector {
	c, ctx, err := redlatchprom.New(redlatchprom.Options{Class: first}), context.Background(), errors.New("x")
	locks, semaphores, stocks, hub := c.Locks(), c.Semaphores(), c.Stocks(), c.Hub()
	for _, e := range []rlock.Event{
		{Kind: rlock.EventAcquiring, Name: "l"},
		{Kind: rlock.EventAcquired, Name: "l", Waited: 1},
		{Kind: rlock.EventNotAcquired, Name: "l", Waited: 1, Err: err},
		{Kind: rlock.EventReleased, Name: "l", Held: 1},
		{Kind: rlock.EventRenewed, Name: "l", Err: err},
		{Kind: rlock.EventEnded, Name: "l", Err: redlatch.ErrLost},
		{Kind: rlock.EventWoken, Name: "l", ByMessage: true},
		{Kind: rlock.EventTakenOver, Name: "l", Holds: 1},
	} {
		locks(ctx, e)
	}
	for _, e := range []rsemaphore.Event{
		{Kind: rsemaphore.EventAcquiring, Name: "s", N: 1},
		{Kind: rsemaphore.EventAcquired, Name: "s", N: 1, Waited: 1},
		{Kind: rsemaphore.EventNotAcquired, Name: "s", N: 1, Waited: 1, Err: err},
		{Kind: rsemaphore.EventReleased, Name: "s", N: 1, Held: -1},
		{Kind: rsemaphore.EventAwaited, Name: "s", Waited: 1},
		{Kind: rsemaphore.EventRenewed, Name: "s"},
		{Kind: rsemaphore.EventEnded, Name: "s", Err: redlatch.ErrWrongType},
		{Kind: rsemaphore.EventWoken, Name: "s"},
	} {
		semaphores(ctx, e)
	}
	stocks(ctx, stock.Event{Kind: stock.EventClaimed, Name: "st", Outcome: stock.Granted, N: 1, Took: 1})
	stocks(ctx, stock.Event{Kind: stock.EventAnsweredLocally, Name: "st", Outcome: stock.SoldOut})
	stocks(ctx, stock.Event{Kind: stock.EventBackgroundFailed, Name: "st", Err: err})
	c.RedPackets()(ctx, redpacket.Event{Name: "p", Outcome: redpacket.Granted, Cents: 1,
		Took: 1})
	c.Counters()(ctx, rcounter.Event{Name: "c", Took: 1})
	c.Limiters()(ctx, ratelimit.Event{Kind: ratelimit.EventBackgroundFailed, Name: "r", Err: err})
	c.Limiters()(ctx, ratelimit.Event{Kind: ratelimit.EventAdmitted, Name: "r", Allowed: true, Took: time.Second})
	c.Limiters()(ctx, ratelimit.Event{Kind: ratelimit.EventDegraded, Name: "r", Policy: ratelimit.Open, Err: err})
	hub(pubsub.Event{Kind: pubsub.EventSubscribed, Channel: "c", Again: true})
	hub(pubsub.Event{Kind: pubsub.EventRefused, Channel: "c", Err: err})
	hub(pubsub.Event{Kind: pubsub.EventLost, Node: "n", Err: err})
	hub(pubsub.Event{Kind: pubsub.EventDropped, Channel: "c"})
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
