package pages_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/redlatchtest"
)

var errDead = errors.New("the process was killed")

// process is a client whose process may be killed at any step: a request to the server, or a call of the bank. A
// process that was killed does nothing any more: it sends nothing, hears nothing, and the bank does not hear of it.
type process struct {
	plan
	red *redlatch.Client

	mu    sync.Mutex
	steps int
	dead  bool
}

// plan is what happens to a process.
type plan struct {
	kill  int  // at which step it is killed; never if negative
	after bool // the step is done, and the process does not learn of it
	at    int  // before which step another process acts
	other func()
}

var lives = plan{kill: -1, at: -1}

// start starts a process.
func start(t *testing.T, srv *redlatchtest.Server, fate plan) *process {
	p := &process{plan: fate}
	o := srv.Option()
	dial := o.DialCtxFn
	o.Dialer.KeepAlive = 24 * time.Hour // no PING a second through hours of a test
	o.DialCtxFn = func(ctx context.Context, to string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		if p.killed() {
			return nil, errDead
		}
		conn, err := dial(ctx, to, d, c)
		return &link{conn, p}, err
	}
	red, err := redlatch.Open(t.Context(), o, redlatch.Options{CallTimeout: 5 * time.Second})
	require.NoError(t, err)
	p.red = red
	return p
}

func (p *process) killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// step does something that others can see, if the process lives.
func (p *process) step(do func() error) error {
	p.mu.Lock()
	n := p.steps
	p.steps++
	p.dead = p.dead || n == p.kill && !p.after
	dead, other := p.dead, p.other
	p.mu.Unlock()
	if dead {
		return errDead
	}
	if n == p.at && other != nil {
		other()
	}
	err := do()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead = p.dead || n == p.kill; p.dead {
		return errDead
	}
	return err
}

// link is a connection of a process, on which each script call is a step.
type link struct {
	net.Conn
	p *process
}

func (l *link) Write(b []byte) (n int, err error) {
	if !bytes.Contains(b, []byte("EVAL")) {
		return l.Conn.Write(b)
	}
	err = l.p.step(func() error { n, err = l.Conn.Write(b); return err })
	if err != nil {
		l.Conn.Close()
	}
	return n, err
}

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if l.p.killed() {
		return 0, errDead
	}
	return n, err
}

// bank is a bank that knows one order.
type bank struct {
	mu            sync.Mutex
	kept, refuses bool
}

// has reports whether the bank keeps the money.
func (b *bank) has() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept
}

// pay is what a process calls: how is "at once", "declined", "unheard" (the money is taken, and no answer comes) or
// "later" (the money is taken after the caller has given up).
func (b *bank) pay(p *process, how string) func(context.Context) error {
	return func(ctx context.Context) error {
		return p.step(func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			switch {
			case b.kept:
				return nil
			case b.refuses:
				return errors.New("refunded")
			case how == "declined":
				return errors.New(how)
			case how == "later":
				time.AfterFunc(20*time.Minute, func() {
					b.mu.Lock()
					defer b.mu.Unlock()
					b.kept = b.kept || !b.refuses
				})
			default:
				b.kept = true
			}
			if how == "at once" {
				return nil
			}
			b.mu.Unlock()
			<-ctx.Done()
			b.mu.Lock() // for the deferred Unlock
			return ctx.Err()
		})
	}
}

func (b *bank) refund(p *process) func(context.Context) error {
	return func(context.Context) error {
		return p.step(func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.kept, b.refuses = false, true
			return nil
		})
	}
}

// shop is a sale of one unit, a customer, and somebody else who wants the unit too.
type shop struct {
	t    *testing.T
	srv  *redlatchtest.Server
	red  *redlatch.Client
	sale *stock.Stock // of the one unit
	unit int64        // of the rival
}

func (s *shop) rivalTakes() {
	g, err := s.sale.Claim(s.t.Context(), "rival")
	require.NoError(s.t, err)
	s.unit = g.Ordinal // 0: none is left
}

func (s *shop) rivalReturns() {
	if s.unit > 0 {
		_, err := s.sale.Return(s.t.Context(), stock.Units{Claimant: "rival", Ordinal: s.unit})
		require.NoError(s.t, err)
	}
	s.unit = 0
}

// Whenever a process is killed, however late the order is called again, and whoever calls at the same time: in the end
// the customer has a unit and the bank the money, or neither.
func TestOrderRecipe_KilledAtAnyStep_IsPaidAndSoldOrNeither(t *testing.T) {
	for _, how := range redistest.Sized([]string{"unheard"}, []string{"unheard", "later"},
		[]string{"at once", "unheard", "later", "declined"}) {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			eachWayToDie(t, func(t *testing.T, s *shop, fate plan, late, rival, back bool) (reached bool) {
				s.sale = s.red.Stocks().Stock("sale")
				_, err := s.sale.Open(t.Context(), stock.Spec{Limit: 1, OpenFor: 24 * time.Hour, Remember: 12 * time.Hour})
				require.NoError(t, err)
				b, sold, tried := &bank{}, false, false
				order := func(fate plan, how string) error {
					p := start(t, s.srv, fate)
					defer p.red.Close(context.Background())
					before := tried
					tried = true // another process may call it meanwhile
					err := Order(t.Context(), p.red, "1", "ann", before, b.pay(p, how), b.refund(p))
					if reached = p.steps > max(p.kill, p.at); !p.killed() {
						sold = sold || err == nil
						return err
					}
					return errDead
				}
				crash := lives
				crash.kill, crash.after = 3, true
				if fate.at >= 0 { // the second of two calls is met by a third one, and the reservation is over
					order(crash, how)
					time.Sleep(11 * time.Minute)
					if rival {
						s.rivalTakes()
					}
					fate.other = func() {
						if back {
							s.rivalReturns()
						}
						order(lives, how)
					}
				}
				order(fate, how)
				met := reached
				if late {
					time.Sleep(11 * time.Minute)
				}
				if rival && s.unit == 0 {
					s.rivalTakes()
				}
				for i := range 3 {
					err = order(lives, how)
					require.True(t, err == nil || errors.Is(err, errNotSold), err)
					if back && i == 0 {
						s.rivalReturns()
					}
				}
				time.Sleep(time.Hour)
				require.Equal(t, sold, order(lives, how) == nil, "the last word")
				g, err := s.sale.Lookup(t.Context(), stock.Units{Request: "1"})
				require.NoError(t, err)
				require.Equal(t, g.Outcome == stock.Replayed && g.Ordinal > 0, b.has(),
					"the customer has a unit, and the bank the money")
				require.Equal(t, sold, b.has())
				return met
			})
		})
	}
}

// The same for a cart that was paid. However often, and by however many processes, PayCart is called: each answer says
// of the same units that their money goes back, and these are the ones that the order does not have.
func TestCart_KilledAtAnyStep_IsSoldOrRefunded(t *testing.T) {
	t.Parallel()
	eachWayToDie(t, func(t *testing.T, s *shop, fate plan, late, rival, back bool) (reached bool) {
		stocks := s.red.Stocks()
		group := stocks.Group("sale")
		for _, name := range []string{"cap", "shirt"} {
			s.sale = group.Stock(name)
			_, err := s.sale.Open(t.Context(), stock.Spec{Limit: 1, OpenFor: 24 * time.Hour, Remember: 12 * time.Hour})
			require.NoError(t, err)
		}
		cart := []stock.Line{{Stock: "shirt", N: 1}, {Stock: "cap", N: 1}}
		missing, err := HoldCart(t.Context(), stocks, "1", "ann", cart)
		require.NoError(t, err)
		require.Empty(t, missing)
		var told map[string]int64
		pay := func(fate plan) {
			p := start(t, s.srv, fate)
			defer p.red.Close(context.Background())
			refund, err := PayCart(t.Context(), p.red.Stocks(), "1", cart)
			if reached = p.steps > max(p.kill, p.at); p.killed() {
				return
			}
			require.NoError(t, err)
			if told == nil {
				told = refund
			}
			require.Equal(t, told, refund, "every answer is the same")
		}
		if late || fate.at >= 0 {
			time.Sleep(16 * time.Minute)
		}
		if rival {
			s.rivalTakes()
		}
		fate.other = func() {
			if back {
				s.rivalReturns()
			}
			pay(lives)
		}
		pay(fate)
		met := reached
		for range 2 {
			if back {
				s.rivalReturns()
			}
			pay(lives)
		}
		for _, line := range cart {
			g, err := group.Stock(line.Stock).Lookup(t.Context(), stock.Units{Request: "1"})
			require.NoError(t, err)
			has := int64(0)
			if g.Outcome == stock.Replayed && g.Ordinal > 0 {
				has = g.N
			}
			require.Equal(t, line.N-has, told[line.Stock], line.Stock)
		}
		return met
	})
}

// eachWayToDie runs a story for each step at which a process can be killed, or met by another, and each thing that can
// happen meanwhile. The story reports whether there was such a step.
func eachWayToDie(t *testing.T, story func(t *testing.T, s *shop, fate plan, late, rival, back bool) (reached bool)) {
	type event struct{ late, rival, back bool }
	events := []event{{late: true, rival: true, back: true}, {late: true}, {}, {late: true, rival: true}}
	// by default every second step: of one event the even ones, of the next the odd ones
	stride := redistest.Sized(2, 2, 1)
	for i, e := range events[:redistest.Sized(1, 3, 4)] {
		eachStep(t, fmt.Sprintf("%+v", e), i%stride, stride, func(t *testing.T, s *shop, fate plan) bool {
			return story(t, s, fate, e.late, e.rival, e.back)
		})
	}
}

// eachStep runs a story for every stride-th step from the first on: a process is killed before it or after it, or met
// by another before it.
func eachStep(t *testing.T, what string, first, stride int,
	story func(t *testing.T, s *shop, fate plan) (reached bool)) {
	for _, way := range []string{"killed before", "killed after", "met before"} {
		step := first
		for more := true; more && !t.Failed(); step += stride {
			fate := plan{kill: step, after: way == "killed after", at: -1}
			if way == "met before" {
				fate.kill, fate.at = -1, step
			}
			synctest.Test(t, func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Log(way, "step", step, what)
					}
				}()
				srv := redlatchtest.New(t)
				p := start(t, srv, lives)
				defer p.red.Close(context.Background())
				more = story(t, &shop{t: t, srv: srv, red: p.red}, fate)
			})
		}
		require.Greater(t, step, 1, way, what)
	}
}
