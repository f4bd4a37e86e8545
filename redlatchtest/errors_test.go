package redlatchtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/stretchr/testify/require"
)

// These tests are how a user's test provokes each error: take the line that you need. Errors that several packages
// share are the same values; those of package rlock stand for all.

// inBubble runs test with a server, and a client of it, in a bubble: what waits takes no time.
func inBubble(t *testing.T, test func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		test(t, srv, srv.Open())
	})
}

// is ends the test unless err is target.
func is(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}

// once asks for a lock, and does not wait for it.
func once(t *testing.T, lock *rlock.Lock) (*rlock.Hold, error) {
	return lock.TryLock(t.Context(), 0, 0)
}

// provoked is what a test does to have an error returned.
var provoked = map[string]func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client){
	"ErrNotAcquired": func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		srv.HoldElsewhere("order:1")
		_, err := once(t, red.Locks().Reentrant("order:1"))
		is(t, err, redlatch.ErrNotAcquired)

		srv.TakeElsewhere("exports", 3, 3)
		_, err = red.Semaphores().Semaphore("exports", 3).TryAcquire(t.Context(), 1, 0, 0)
		is(t, err, redlatch.ErrNotAcquired)
	},
	"ErrLost": func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		err := red.Locks().Reentrant("order:1").Do(t.Context(), func(ctx context.Context) error {
			srv.Lose("order:1") // in the middle of the work
			<-ctx.Done()
			return context.Cause(ctx)
		})
		is(t, err, redlatch.ErrLost)

		permit, err := red.Semaphores().Semaphore("exports", 3).Acquire(t.Context(), 2)
		is(t, err, nil)
		srv.Lose("exports")
		<-permit.Done()
		is(t, permit.Release(t.Context()), redlatch.ErrLost)
	},
	"ErrReleased": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		hold, err := once(t, red.Locks().Reentrant("order:1"))
		is(t, err, nil)
		is(t, hold.Unlock(t.Context()), nil)
		is(t, hold.Extend(t.Context(), time.Minute), redlatch.ErrReleased)
	},
	"ErrMaxHold": func(t *testing.T, srv *redlatchtest.Server, _ *redlatch.Client) {
		red := srv.Open(redlatch.Options{Locks: func(o *rlock.Options) { o.MaxHold = time.Minute }})
		hold, err := once(t, red.Locks().Reentrant("order:1"))
		is(t, err, nil)
		time.Sleep(time.Minute) // of the bubble's time
		<-hold.Done()
		is(t, hold.Err(), redlatch.ErrMaxHold)
		is(t, hold.Unlock(t.Context()), nil)
	},
	"ErrUnavailable": func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		srv.Break(redlatchtest.Fault{Kind: redlatchtest.Unavailable})
		_, err := once(t, red.Locks().Reentrant("order:1"))
		is(t, err, redlatch.ErrUnavailable)
	},
	"ErrDenied": func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		srv.Break(redlatchtest.Fault{Kind: redlatchtest.Denied, Name: "order:1"})
		_, err := once(t, red.Locks().Reentrant("order:1"))
		is(t, err, redlatch.ErrDenied)
	},
	"ErrNotReplicated": func(t *testing.T, srv *redlatchtest.Server, _ *redlatch.Client) {
		red := srv.Open(redlatch.Options{MinReplicas: 1})
		srv.Break(redlatchtest.Fault{Kind: redlatchtest.NotReplicated, Name: "order:1"})
		_, err := once(t, red.Locks().Reentrant("order:1"))
		is(t, err, redlatch.ErrNotReplicated)
	},
	"ErrReentry": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		lock := red.Locks().NonReentrant("order:1")
		err := lock.Do(t.Context(), func(ctx context.Context) error {
			return lock.Do(ctx, func(context.Context) error { return nil })
		})
		is(t, err, rlock.ErrReentry)
	},
	"ErrClosed": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		is(t, red.Close(t.Context()), nil)
		_, err := once(t, red.Locks().Reentrant("order:1"))
		is(t, err, redlatch.ErrClosed)
	},
	"ErrInvalidName": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		_, err := once(t, red.Locks().Reentrant(""))
		is(t, err, redlatch.ErrInvalidName)
	},
	"ErrInvalidOption": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		_, err := red.Locks().Reentrant("order:1").TryLock(t.Context(), 0, time.Microsecond)
		is(t, err, redlatch.ErrInvalidOption)
	},
	"ErrWrongType": func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		is(t, srv.Redis().Set("order:1", "another program's"), nil)
		_, err := once(t, red.Locks().Reentrant("order:1"))
		is(t, err, redlatch.ErrWrongType)
	},
	"ErrCapacityMismatch": func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		srv.TakeElsewhere("exports", 1, 3)
		_, err := red.Semaphores().Semaphore("exports", 5).Acquire(t.Context(), 1)
		is(t, err, rsemaphore.ErrCapacityMismatch)
	},
	"ErrLatchExpired": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		latch := red.Semaphores().CountDownLatch("imported")
		_, err := latch.TrySetCount(t.Context(), 1, time.Minute)
		is(t, err, nil)
		is(t, latch.Await(t.Context()), rsemaphore.ErrLatchExpired) // a minute later
	},
	"ErrLatchDeleted": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		latch := red.Semaphores().CountDownLatch("imported")
		_, err := latch.TrySetCount(t.Context(), 1, 0)
		is(t, err, nil)
		time.AfterFunc(time.Minute, func() { latch.Delete(context.Background()) })
		is(t, latch.Await(t.Context()), rsemaphore.ErrLatchDeleted)
	},
	"ErrBrokenBarrier": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := red.Semaphores().CyclicBarrier("start", 2).Await(ctx) // the other party does not come
		is(t, err, rsemaphore.ErrBrokenBarrier)
	},
	"ErrOutOfRange": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		_, err := red.Counters().Counter("left", rcounter.CounterOptions{Min: rcounter.Bound(0)}).Decr(t.Context())
		is(t, err, redlatch.ErrOutOfRange)
	},
	"ErrOverflow": func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		is(t, srv.Redis().Set("visits", "9223372036854775807"), nil)
		_, err := red.Counters().Counter("visits", rcounter.CounterOptions{}).Incr(t.Context())
		is(t, err, redlatch.ErrOverflow)
	},
	"ErrMismatch": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		points := red.Counters().Counter("points", rcounter.CounterOptions{})
		_, _, err := points.AddOnce(t.Context(), "order:1", 5)
		is(t, err, nil)
		_, _, err = points.AddOnce(t.Context(), "order:1", 6)
		is(t, err, redlatch.ErrMismatch)
	},
	"ErrLimited": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		limit := red.Limiters().Limiter("mail", ratelimit.LimiterOptions{Rate: 1, Per: time.Hour})
		_, err := limit.Allow(t.Context(), "", 1)
		is(t, err, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the next one may go in an hour
		defer cancel()
		_, err = limit.Wait(ctx, "", 1)
		is(t, err, ratelimit.ErrLimited)
	},
	"ErrNoStock": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		_, err := red.Sales().Sale("phones").Buy(t.Context(), stock.Order{User: "ann"}) // never opened
		is(t, err, stock.ErrNoStock)
	},
	"ErrLater": func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		s := openSale(t, red, stock.Spec{Limit: 5, StartIn: time.Hour})
		a, err := s.Buy(t.Context(), stock.Order{User: "ann"})
		is(t, err, stock.ErrLater)
		require.Equal(t, stock.NotStarted, a.Why)
		srv.Advance(time.Hour)
		_, err = s.Buy(t.Context(), stock.Order{User: "ann"})
		is(t, err, nil)
	},
	"ErrNewer": func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		s := openSale(t, red, stock.Spec{Limit: 5})
		srv.Redis().HSet("rc:{phones}:sale", "state", "v2 1") // as a later version writes it
		_, err := s.Buy(t.Context(), stock.Order{User: "ann"})
		is(t, err, redlatch.ErrNewer)
	},
	"ErrCorrupt": func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		s := openSale(t, red, stock.Spec{Limit: 5})
		_, err := s.Buy(t.Context(), stock.Order{User: "ann"})
		is(t, err, nil)
		srv.Redis().Del("rc:{phones}:orders") // as eviction does it
		_, err = s.Pay(t.Context(), "ann")
		is(t, err, redlatch.ErrCorrupt)
		is(t, err, stock.ErrNoStock)
	},
	"ErrAlreadyOpen": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		_, err := packet(t, red).Send(t.Context(), redpacket.Spec{Total: 1000, Shares: 10, OpenFor: time.Hour})
		is(t, err, redlatch.ErrAlreadyOpen)
	},
	"ErrNotEnded": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		_, err := packet(t, red).Refund(t.Context())
		is(t, err, redpacket.ErrNotEnded)
	},
	"ErrNoPacket": func(t *testing.T, _ *redlatchtest.Server, red *redlatch.Client) {
		_, err := red.RedPackets().Packet("new-year").Refund(t.Context())
		is(t, err, redpacket.ErrNoPacket)
	},
	"ErrSending": func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
		// is stored in parts
		spec := redpacket.Spec{Total: 1_000_000, Shares: 10_000, OpenFor: time.Hour}
		// it asks for the time first
		second := srv.Break(redlatchtest.Fault{Kind: redlatchtest.Slow, Delay: time.Second, Name: "new-year", Skip: 2,
			Times: 1})
		sent := make(chan error, 1)
		go func() {
			_, err := srv.Open().RedPackets().Packet("new-year").Send(t.Context(), spec)
			sent <- err
		}()
		<-second.Caught()
		_, err := red.RedPackets().Packet("new-year").Send(t.Context(), spec)
		is(t, err, redpacket.ErrSending)
		is(t, <-sent, nil)
	},
	// A channel is named as an object is.
	"ErrorsOfPubsub": func(t *testing.T, srv *redlatchtest.Server, _ *redlatch.Client) {
		hub := srv.Hub()
		_, err := hub.Subscribe(t.Context(), "")
		is(t, err, redlatch.ErrInvalidName)

		denied := srv.Break(redlatchtest.Fault{Kind: redlatchtest.Denied, Name: "news"})
		_, err = hub.Subscribe(t.Context(), "news")
		is(t, err, redlatch.ErrDenied)
		denied.Heal()

		lost := srv.Break(redlatchtest.Fault{Kind: redlatchtest.LostReply, Name: "news"})
		_, err = hub.Publish(t.Context(), "news", "hello")
		is(t, err, redlatch.ErrUnknownOutcome)
		lost.Heal()

		srv.Break(redlatchtest.Fault{Kind: redlatchtest.Unavailable, Name: "news"})
		_, err = hub.Publish(t.Context(), "news", "hello")
		is(t, err, redlatch.ErrUnavailable)

		is(t, hub.Close(t.Context()), nil)
		_, err = hub.Subscribe(t.Context(), "news")
		is(t, err, redlatch.ErrClosed)

		option := srv.Option()
		option.ConnLifetime = time.Minute
		_, err = pubsub.Dial(t.Context(), option, pubsub.Options{})
		is(t, err, redlatch.ErrInvalidOption)
	},
}

func TestErrors_OfEveryPackage_AreProvoked(t *testing.T) {
	for name, test := range provoked {
		t.Run(name, func(t *testing.T) { inBubble(t, test) })
	}
}

// openSale opens a sale for an hour.
func openSale(t *testing.T, red *redlatch.Client, spec stock.Spec) *stock.Sale {
	t.Helper()
	spec.OpenFor = time.Hour
	s := red.Sales().Sale("phones")
	is(t, s.Open(t.Context(), spec), nil)
	return s
}

// What became of an order is an answer, and not an error.
func TestOrder_Over_PaySaysWhy(t *testing.T) {
	for want, end := range map[string]func(t *testing.T, srv *redlatchtest.Server, s *stock.Sale) error{
		stock.Expired: func(t *testing.T, srv *redlatchtest.Server, s *stock.Sale) error {
			srv.Advance(2 * time.Minute)
			return s.EndSale(t.Context()) // or its unit would be sold late
		},
		stock.Cancelled: func(t *testing.T, _ *redlatchtest.Server, s *stock.Sale) error {
			_, err := s.Cancel(t.Context(), "cart:1")
			return err
		},
		stock.Returned: func(t *testing.T, _ *redlatchtest.Server, s *stock.Sale) error {
			_, err := s.Pay(t.Context(), "cart:1")
			if err == nil {
				_, err = s.Return(t.Context(), "cart:1")
			}
			return err
		},
	} {
		t.Run(want, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
				s := openSale(t, red, stock.Spec{Limit: 5})
				_, err := s.Reserve(t.Context(), stock.Order{ID: "cart:1", User: "ann"}, time.Minute)
				is(t, err, nil)
				is(t, end(t, srv, s), nil)
				a, err := s.Pay(t.Context(), "cart:1")
				is(t, err, nil)
				require.Equal(t, stock.Closed, a.State)
				require.Equal(t, want, a.Why)
				require.Len(t, a.Refund(stock.Line{N: 1}), 1)
			})
		})
	}
}

// packet sends a red packet that is open for an hour.
func packet(t *testing.T, red *redlatch.Client) *redpacket.Packet {
	t.Helper()
	p := red.RedPackets().Packet("new-year")
	_, err := p.Send(t.Context(), redpacket.Spec{Total: 1000, Shares: 10, OpenFor: time.Hour})
	is(t, err, nil)
	return p
}

// Every fault strikes the calls of every package.
func TestFault_EveryPackage_ReturnsTheSameErrors(t *testing.T) {
	calls := map[string]func(ctx context.Context, red *redlatch.Client) error{
		"rlock": func(ctx context.Context, red *redlatch.Client) error {
			_, err := red.Locks().ReadWrite("x").Read().TryLock(ctx, 0, 0)
			return err
		},
		"rsemaphore": func(ctx context.Context, red *redlatch.Client) error {
			_, err := red.Semaphores().Semaphore("x", 3).TryAcquire(ctx, 1, 0, 0)
			return err
		},
		"rcounter": func(ctx context.Context, red *redlatch.Client) error {
			_, err := red.Counters().Counter("x", rcounter.CounterOptions{}).Incr(ctx)
			return err
		},
		"stock": func(ctx context.Context, red *redlatch.Client) error {
			_, err := red.Sales().Sale("x").Buy(ctx, stock.Order{User: "ann"})
			return err
		},
		"redpacket": func(ctx context.Context, red *redlatch.Client) error {
			_, err := red.RedPackets().Packet("x").Grab(ctx, "ann")
			return err
		},
		"ratelimit": func(ctx context.Context, red *redlatch.Client) error {
			_, err := red.Limiters().Limiter("x", ratelimit.LimiterOptions{Rate: 1}).Allow(ctx, "", 1)
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *redlatchtest.Server, red *redlatch.Client) {
				for kind, want := range map[redlatchtest.Kind]error{
					redlatchtest.Unavailable: redlatch.ErrUnavailable,
					redlatchtest.LostRequest: redlatch.ErrUnknownOutcome,
					redlatchtest.LostReply:   redlatch.ErrUnknownOutcome,
					redlatchtest.Silent:      redlatch.ErrUnknownOutcome,
					redlatchtest.Denied:      redlatch.ErrDenied,
				} {
					fault := srv.Break(redlatchtest.Fault{Kind: kind, Name: "x"})
					is(t, call(t.Context(), red), want)
					fault.Heal()
				}
				is(t, red.Close(t.Context()), nil)
				is(t, call(t.Context(), red), redlatch.ErrClosed)
			})
		})
	}
}
