package stock_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// sold are entries of an opening, with these serials.
func sold(epoch int64, serials ...int64) (entries []stock.Entry) {
	for _, n := range serials {
		entries = append(entries,
			stock.Entry{Serial: n, Kind: stock.KindGrant, Epoch: epoch, Ordinal: n, N: 1, Claimant: "ann",
				At: time.UnixMicro(n).UTC()})
	}
	return entries
}

// page is a loop over the events of a stock, taken one by one.
type page struct {
	t    testing.TB
	next func() (stock.LedgerEvent, error, bool)
}

func watch(t testing.TB, s *stock.Stock, every time.Duration) *page {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	next, stop := iter.Pull2(s.Events(ctx, every))
	t.Cleanup(stop)
	return &page{t, next}
}

// said is what comes next: a gap, or the opening and serial of an entry.
func (p *page) said() string {
	p.t.Helper()
	e, err, ok := p.next()
	require.NoError(p.t, err)
	require.True(p.t, ok)
	if e.Gap {
		require.Equal(p.t, stock.LedgerEvent{Gap: true}, e)
		return "gap"
	}
	require.Equal(p.t, sold(e.Epoch, e.Serial)[0], e.Entry)
	return fmt.Sprint(e.Epoch, "/", e.Serial)
}

func (p *page) says(all ...string) {
	p.t.Helper()
	for _, want := range all {
		require.Equal(p.t, want, p.said())
	}
}

func TestEvents_BetweenGaps_ComeOnceInOrderWithoutAHole(t *testing.T) {
	t.Parallel()
	c := redistest.Embedded(t).Client(t)
	hub := rig.Hub(t, c)
	stocks, err := stock.New(hub, patient)
	require.NoError(t, err)
	s := stocks.Stock("s")
	p := watch(t, s, time.Hour)
	p.says("gap") // subscribed
	publish := func(epoch int64, serials ...int64) {
		t.Helper()
		require.NoError(t, s.Publish(ctx, sold(epoch, serials...)))
	}
	foreign := func(text string) {
		t.Helper()
		n, err := hub.Publish(ctx, "redlatch_stock:{s}", text)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	}
	publish(7, 5, 6)
	publish(7, 5, 6, 7) // by another mover
	publish(7, 8)
	p.says("7/5", "7/6", "7/7", "7/8")
	publish(7, 11, 12) // somebody failed to publish 9 and 10, or is slow
	publish(7, 9, 10)
	publish(7, 13)
	p.says("gap", "7/11", "7/12", "7/13")
	publish(9, 1, 2) // another opening
	publish(7, 14)   // of the one before, by a slow mover
	publish(9, 3)
	p.says("gap", "9/1", "9/2", "gap", "7/14", "gap", "9/3")
	for _, text := range []string{"", "{", `{"s":4}`, `[{"s":4}]`, `[{"e":9,"s":-4}]`, `[{"e":9,"s":"4"}]`} {
		foreign(text)
		p.says("gap")
	}
	publish(9, 2, 3)
	p.says("9/2", "9/3") // after such a gap anything may follow: a failover has the last numbers given again
	require.NoError(t, s.Publish(ctx, nil))
	require.NoError(t, stocks.Stock("t").Publish(ctx, sold(9, 4)), "nobody listens, and to another stock")
	publish(9, 4)
	p.says("9/4")
}

func TestPublish_ManyEntries_AreMessagesOfBoundedSize(t *testing.T) {
	t.Parallel()
	c := redistest.Embedded(t).Client(t)
	hub := rig.Hub(t, c)
	stocks, err := stock.New(hub, patient)
	require.NoError(t, err)
	s := stocks.Group("tag").Stock("s")
	raw, err := hub.Subscribe(ctx, "redlatch_stock:{tag}{s}")
	require.NoError(t, err)
	defer raw.Close()
	p := watch(t, s, time.Hour)
	p.says("gap")
	var entries []stock.Entry
	for i := range int64(10_000) {
		entries = append(entries,
			stock.Entry{Serial: i + 1, Kind: stock.KindReturn, Epoch: 1 << 52, Ordinal: i, N: 3, Claimant: "ünï",
				Request: "<&>\"", At: time.UnixMicro(i).UTC()})
	}
	long := strings.Repeat("\x01", 1024)
	for _, i := range []int{0, 17, 5000, 9998, 9999} {
		entries[i].Claimant, entries[i].Request = long, long
	}
	require.NoError(t, s.Publish(ctx, entries))
	for _, want := range entries {
		if e, err, _ := p.next(); err != nil || e != (stock.LedgerEvent{Entry: want}) {
			require.NoError(t, err)
			require.Equal(t, stock.LedgerEvent{Entry: want}, e)
		}
	}
	messages := 0
	for last := false; !last; messages++ {
		m, err := raw.Next(ctx)
		require.NoError(t, err)
		require.LessOrEqual(t, len(m.Payload), 64<<10)
		last = strings.Contains(m.Payload, `{"s":10000,`)
	}
	require.Less(t, messages, 40)
}

// The hub's buffer is full, and what is dropped is a gap. Its other subscriptions go on meanwhile.
func TestEvents_SlowReader_SeesAGapAndDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := redistest.Embedded(t).Client(t)
	hub, err := pubsub.New(c, pubsub.Options{Buffer: 4})
	require.NoError(t, err)
	t.Cleanup(func() { hub.Close(context.Background()) })
	stocks, err := stock.New(hub, patient)
	require.NoError(t, err)
	s := stocks.Stock("s")
	p := watch(t, s, time.Hour)
	p.says("gap")
	for n := range int64(20) {
		require.NoError(t, s.Publish(ctx, sold(1, n+1)))
	}
	quick := watch(t, stocks.Stock("quick"), time.Hour)
	quick.says("gap")
	require.NoError(t, stocks.Stock("quick").Publish(ctx, sold(1, 1)))
	quick.says("1/1") // behind the others on one connection: when it is here, they are
	p.says("gap", "1/18", "1/19", "1/20")
	require.NoError(t, s.Publish(ctx, sold(1, 21)))
	p.says("1/21")
}

// Nobody publishes, or the channel is never silent, or there is no server: the page looks now and then.
func TestEvents_Every_BoundsTheTimeBetweenGaps(t *testing.T) {
	t.Parallel()
	type rig struct {
		hub    *pubsub.Hub
		stocks *stock.Client
	}
	open := func(t *testing.T, _ *redistest.Server, c rueidis.Client) (r rig, end func()) {
		hub, err := pubsub.New(c, pubsub.Options{})
		require.NoError(t, err)
		stocks, err := stock.New(hub, patient)
		require.NoError(t, err)
		return rig{hub, stocks}, func() { stocks.Close(context.Background()); hub.Close(context.Background()) }
	}
	redistest.InBubble(t, 1, open, func(t *testing.T, _ *redistest.Server, all []rig) {
		s := all[0].stocks.Stock("s")
		began, gaps := time.Now(), 0
		for e, err := range s.Events(t.Context(), 3*time.Second) {
			require.NoError(t, err)
			require.True(t, e.Gap)
			require.Equal(t, time.Duration(gaps)*3*time.Second, time.Since(began))
			if gaps++; gaps == 4 {
				break
			}
		}
		gaps, began = 0, time.Now()
		serial := int64(0)
		for e, err := range s.Events(t.Context(), 3*time.Second) {
			require.NoError(t, err)
			if e.Gap {
				gaps++
			}
			if time.Since(began) > 31*time.Second {
				break
			}
			time.Sleep(100 * time.Millisecond)
			serial += 2
			require.NoError(t, s.Publish(t.Context(), sold(1, serial-1, serial)))
		}
		require.GreaterOrEqual(t, gaps, 10)
	})
}

func TestEvents_CannotSubscribe_SeesGapsUntilItCan(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	proxy := redistest.NewProxy(t, srv)
	c := on(t, proxy.Server().Client(t), patient)
	proxy.Refuse()
	proxy.Cut()
	p := watch(t, c.Stock("s"), 10*time.Millisecond)
	p.says("gap", "gap", "gap")
	proxy.Heal()
	mover := on(t, srv.Client(t), patient).Stock("s")
	for n := int64(1); ; n++ {
		require.NoError(t, mover.Publish(ctx, sold(1, n)))
		if p.said() != "gap" {
			break
		}
	}
}

func TestEvents_ContextClientOrHubEnds_End(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for name, tc := range map[string]struct {
		end  func(cancel context.CancelCauseFunc, c *stock.Client, h *pubsub.Hub)
		want error
	}{
		"context": {func(cancel context.CancelCauseFunc, _ *stock.Client, _ *pubsub.Hub) { cancel(enough) }, enough},
		"client":  {func(_ context.CancelCauseFunc, c *stock.Client, _ *pubsub.Hub) { c.Close(ctx) }, errs.ErrClosed},
		"hub":     {func(_ context.CancelCauseFunc, _ *stock.Client, h *pubsub.Hub) { h.Close(ctx) }, errs.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			hub := rig.Hub(t, redistest.Embedded(t).Client(t))
			c, err := stock.New(hub, patient)
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var said []error
			for e, err := range c.Stock("s").Events(ctx, time.Hour) {
				if said = append(said, err); err == nil {
					require.True(t, e.Gap)
					time.AfterFunc(time.Millisecond, func() { tc.end(cancel, c, hub) })
				}
			}
			require.Len(t, said, 2)
			require.ErrorIs(t, said[1], tc.want)
			requirePrefix(t, said[1])
		})
	}
}
