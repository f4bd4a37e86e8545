package redlatchledger_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// sold are entries of an opening, with these serials.
func sold(epoch int64, serials ...int64) (entries []stock.Entry) {
	for _, n := range serials {
		entries = append(entries,
			stock.Entry{Serial: n, Kind: "sold", Epoch: epoch, Ordinal: n, N: 1, ID: "ann", At: time.UnixMicro(n).UTC()})
	}
	return entries
}

func live(t testing.TB, c rueidis.Client, o pubsub.Options) redlatchledger.Live {
	t.Helper()
	hub := redistest.NoError(pubsub.New(c, o))(t)
	t.Cleanup(func() { hub.Close(context.Background()) })
	return redlatchledger.Live{Hub: hub, Channel: "live"}
}

// page is a loop over the events of a sale, taken one by one.
type page struct {
	testing.TB
	next func() (redlatchledger.Event, error, bool)
}

func watch(t testing.TB, l redlatchledger.Live, every time.Duration) *page {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	next, stop := iter.Pull2(l.Events(ctx, every))
	t.Cleanup(stop)
	return &page{t, next}
}

// said is what comes next: a gap, or the opening and serial of an entry.
func (p *page) said() string {
	p.Helper()
	e, err, ok := p.next()
	require.NoError(p, err)
	require.True(p, ok)
	if e.Gap {
		require.Equal(p, redlatchledger.Event{Gap: true}, e)
		return "gap"
	}
	require.Equal(p, sold(e.Epoch, e.Serial)[0], e.Entry)
	return fmt.Sprint(e.Epoch, "/", e.Serial)
}

func (p *page) says(all ...string) {
	p.Helper()
	for _, want := range all {
		require.Equal(p, want, p.said())
	}
}

func TestEvents_BetweenGaps_ComeOnceInOrderWithoutAHole(t *testing.T) {
	t.Parallel()
	l, ctx := live(t, redistest.Embedded(t).Client(t), pubsub.Options{}), t.Context()
	p := watch(t, l, time.Hour)
	p.says("gap") // subscribed
	publish := func(epoch int64, serials ...int64) {
		t.Helper()
		require.NoError(t, l.Publish(ctx, sold(epoch, serials...)))
	}
	publish(7, 5, 6)
	publish(7, 5, 6, 7) // by another mover
	publish(7, 8)
	p.says("7/5", "7/6", "7/7", "7/8")
	publish(7, 11, 12) // somebody failed to publish 9 and 10, or is slow
	publish(7, 9, 10)
	publish(7, 13)
	p.says("gap", "7/11", "7/12", "7/13")
	publish(9, 14) // restored
	publish(7, 12) // by a mover of the opening before
	publish(9, 15)
	p.says("9/14", "9/15")
	publish(10, 1, 2) // another sale, or rows were taken out of the database
	p.says("gap", "10/1", "10/2")
	for _, text := range []string{"", "{", `{"Serial":4}`, `[{"Serial":4}]`, `[{"Epoch":10,"Serial":-4}]`,
		`[{"Epoch":10,"Serial":"4"}]`} {
		n := redistest.NoError(l.Hub.Publish(ctx, l.Channel, text))(t)
		require.EqualValues(t, 1, n)
		p.says("gap")
	}
	publish(10, 2, 3)
	p.says("10/2", "10/3") // after such a gap anything may follow: a failover has the last numbers given again
	require.NoError(t, l.Publish(ctx, nil))
	other := l
	other.Channel = "another"
	require.NoError(t, other.Publish(ctx, sold(10, 4)), "nobody listens")
	publish(10, 4)
	p.says("10/4")
}

func TestPublish_ManyEntries_AreMessagesOfBoundedSize(t *testing.T) {
	t.Parallel()
	l, ctx := live(t, redistest.Embedded(t).Client(t), pubsub.Options{}), t.Context()
	raw := redistest.NoError(l.Hub.Subscribe(ctx, l.Channel))(t)
	defer raw.Close()
	p := watch(t, l, time.Hour)
	p.says("gap")
	var entries []stock.Entry
	for i := range int64(1_000) {
		entries = append(entries, stock.Entry{Serial: i + 1, Kind: "reserved", Epoch: 1 << 52, Item: "red", User: "ünï",
			ID: "<&>\"", Asked: 4, N: 3, Ordinal: i, At: time.UnixMicro(i).UTC(), Until: time.UnixMilli(i).UTC(), Why: "?"})
	}
	require.NoError(t, l.Publish(ctx, entries))
	for _, want := range entries {
		e, err, _ := p.next()
		require.NoError(t, err)
		require.True(t, e == redlatchledger.Event{Entry: want}, "%v", e)
	}
	messages := 0
	for last := false; !last; messages++ {
		m := redistest.NoError(raw.Next(ctx))(t)
		require.LessOrEqual(t, len(m.Payload), 32<<10)
		last = strings.Contains(m.Payload, `"Serial":1000,`)
	}
	require.Equal(t, 10, messages)
}

// The hub's buffer is full, and what is dropped is a gap. Its other subscriptions go on meanwhile.
func TestEvents_SlowReader_SeesAGapAndDelaysNoOther(t *testing.T) {
	t.Parallel()
	slow, ctx := live(t, redistest.Embedded(t).Client(t), pubsub.Options{Buffer: 4}), t.Context()
	p := watch(t, slow, time.Hour)
	p.says("gap")
	for n := range int64(20) {
		require.NoError(t, slow.Publish(ctx, sold(1, n+1)))
	}
	other := slow
	other.Channel = "quick"
	quick := watch(t, other, time.Hour)
	quick.says("gap")
	require.NoError(t, other.Publish(ctx, sold(1, 1)))
	quick.says("1/1") // behind the others on one connection: when it is here, they are
	p.says("gap", "1/18", "1/19", "1/20")
	require.NoError(t, slow.Publish(ctx, sold(1, 21)))
	p.says("1/21")
}

// Nobody publishes, or the channel is never silent: the page looks now and then.
func TestEvents_Every_BoundsTheTimeBetweenGaps(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, _ *redistest.Server, c rueidis.Client) (redlatchledger.Live, func()) {
		l := live(t, c, pubsub.Options{})
		return l, func() { l.Hub.Close(context.Background()) }
	}
	redistest.InBubble(t, 1, open, func(t *testing.T, _ *redistest.Server, all []redlatchledger.Live) {
		for _, publishes := range []bool{false, true} {
			last, gaps, serial := time.Now(), 0, int64(0)
			for e, err := range all[0].Events(t.Context(), 3*time.Second) {
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(last), 3100*time.Millisecond)
				if e.Gap {
					last = time.Now()
					gaps++
				}
				if gaps == 10 {
					break
				}
				if publishes {
					time.Sleep(100 * time.Millisecond)
					serial += 2
					require.NoError(t, all[0].Publish(t.Context(), sold(1, serial-1, serial)))
				}
			}
		}
	})
}

func TestEvents_CannotSubscribe_SeesGapsUntilItCan(t *testing.T) {
	t.Parallel()
	srv := redistest.Embedded(t)
	proxy := redistest.NewProxy(t, srv)
	l := live(t, proxy.Server().Client(t), pubsub.Options{})
	proxy.Refuse()
	proxy.Cut()
	p := watch(t, l, 10*time.Millisecond)
	p.says("gap", "gap", "gap")
	proxy.Heal()
	mover := live(t, srv.Client(t), pubsub.Options{})
	for n := int64(1); ; n++ {
		require.NoError(t, mover.Publish(t.Context(), sold(1, n)))
		if p.said() != "gap" {
			break
		}
	}
}

func TestEvents_ContextOrHubEnds_End(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for _, want := range []error{enough, redlatch.ErrClosed, redlatch.ErrInvalidOption} {
		l := live(t, redistest.Embedded(t).Client(t), pubsub.Options{})
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		every := time.Hour
		if errors.Is(want, redlatch.ErrInvalidOption) {
			every = 0
		}
		var last error
		for e, err := range l.Events(ctx, every) {
			require.NotEqual(t, e.Gap, err != nil)
			switch last = err; {
			case errors.Is(want, enough):
				cancel(enough)
			case errors.Is(want, redlatch.ErrClosed):
				l.Hub.Close(context.Background())
			}
		}
		require.ErrorIs(t, last, want)
	}
}
