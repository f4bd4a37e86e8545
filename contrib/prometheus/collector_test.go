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
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
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
	sale := red.Sales().Sale("sale:1")
	require.NoError(t, sale.Open(ctx, stock.Spec{Limit: 2, OpenFor: time.Hour}))
	for _, who := range []string{"ann", "ann"} {
		_, err := sale.Buy(ctx, stock.Order{User: who})
		require.NoError(t, err)
	}
	_, err := sale.Reserve(ctx, stock.Order{User: "bob"}, time.Minute)
	require.NoError(t, err)
	for range 3 {
		_, err := sale.Buy(ctx, stock.Order{Anyone: true}) // the server says that it is sold out, once
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, value(t, c, "redlatch_claims_total", "class=sale", "kind=stock", "outcome=sold"))
	require.EqualValues(t, 1, value(t, c, "redlatch_claims_total", "class=sale", "kind=stock", "outcome=reserved"))
	require.EqualValues(t, 1, value(t, c, "redlatch_claims_total", "class=sale", "kind=stock", "outcome=replayed"))
	require.EqualValues(t, 2, value(t, c, "redlatch_claimed_units_total", "class=sale", "kind=stock"))
	require.EqualValues(t, 3, value(t, c, "redlatch_claims_total", "class=sale", "kind=stock", "outcome=sold_out")+
		value(t, c, "redlatch_local_answers_total", "class=sale", "outcome=sold_out"))
	c.Observe(ctx, redlatch.Event{Package: "stock", Kind: redlatch.EventShared, Name: "sale:1", N: 7})
	require.EqualValues(t, 1, value(t, c, "redlatch_shared_calls_total", "kind=stock"))
	require.EqualValues(t, 7, value(t, c, "redlatch_shared_requests_total", "kind=stock"))

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
	tell := func(pkg string, kind redlatch.EventKind, name string) {
		c.Observe(context.Background(), redlatch.Event{Package: pkg, Kind: kind, Name: name})
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { tell("rlock", redlatch.EventAcquired, fmt.Sprint("name ", i)) })
	}
	all.Wait()
	tell("rcounter", redlatch.EventWritten, "another kind")
	tell("rcounter", redlatch.EventWritten, "")
	require.Equal(t, 3+1, testutil.CollectAndCount(c, "redlatch_acquisitions_total"))
	require.EqualValues(t, 97, value(t, c, "redlatch_acquisitions_total", "class=other", "kind=lock", "result=acquired"))
	require.EqualValues(t, 1, value(t, c, "redlatch_writes_total", "class=another kind", "result=written"))
	require.EqualValues(t, 1, value(t, c, "redlatch_writes_total", "class=other", "result=written"))
}

// everything is a Collector that was told of every kind of event, so that no metric is without a series.
func everything() *redlatchprom.Collector {
	c, err := redlatchprom.New(redlatchprom.Options{Class: first}), errors.New("x")
	for pkg, events := range map[string][]redlatch.Event{
		"rlock": {
			{Kind: redlatch.EventAcquiring, Name: "l"},
			{Kind: redlatch.EventAcquired, Name: "l", Took: 1},
			{Kind: redlatch.EventNotAcquired, Name: "l", Took: 1, Err: err},
			{Kind: redlatch.EventReleased, Name: "l", Held: 1},
			{Kind: redlatch.EventRenewed, Name: "l", Err: err},
			{Kind: redlatch.EventEnded, Name: "l", Err: redlatch.ErrLost},
			{Kind: redlatch.EventWoken, Name: "l", ByMessage: true},
			{Kind: redlatch.EventTakenOver, Name: "l", N: 1},
		},
		"rsemaphore": {
			{Kind: redlatch.EventAcquiring, Name: "s", N: 1},
			{Kind: redlatch.EventAcquired, Name: "s", N: 1, Took: 1},
			{Kind: redlatch.EventNotAcquired, Name: "s", N: 1, Took: 1, Err: err},
			{Kind: redlatch.EventReleased, Name: "s", N: 1, Held: -1},
			{Kind: redlatch.EventAwaited, Name: "s", Took: 1},
			{Kind: redlatch.EventRenewed, Name: "s"},
			{Kind: redlatch.EventEnded, Name: "s", Err: redlatch.ErrWrongType},
			{Kind: redlatch.EventWoken, Name: "s"},
		},
		"stock": {
			{Kind: redlatch.EventClaimed, Name: "st", Outcome: string(stock.Sold), N: 1, Took: 1},
			{Kind: redlatch.EventAnsweredLocally, Name: "st", Outcome: stock.SoldOut},
			{Kind: redlatch.EventBackgroundFailed, Name: "st", Err: err},
		},
		"redpacket": {{Kind: redlatch.EventClaimed, Name: "p", Outcome: "grabbed", N: 1, Took: 1}},
		"rcounter":  {{Kind: redlatch.EventWritten, Name: "c", Took: 1}},
		"ratelimit": {
			{Kind: redlatch.EventBackgroundFailed, Name: "r", Err: err},
			{Kind: redlatch.EventAdmitted, Name: "r", Outcome: "allowed", Took: time.Second},
			{Kind: redlatch.EventSettled, Name: "r", N: 1},
			{Kind: redlatch.EventDegraded, Name: "r", Outcome: string(ratelimit.Open), Err: err},
		},
		"pubsub": {
			{Kind: redlatch.EventSubscribed, Name: "c", Again: true},
			{Kind: redlatch.EventRefused, Name: "c", Err: err},
			{Kind: redlatch.EventLost, Name: "n", Err: err},
			{Kind: redlatch.EventDropped, Name: "c"},
		},
	} {
		for _, e := range events {
			e.Package = pkg
			c.Observe(context.Background(), e)
		}
	}
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
