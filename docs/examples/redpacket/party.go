package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/redpacket"
)

const (
	tapping  = 64               // users who tap at the same moment
	patience = 10 * time.Second // of a user, while Redis does not answer
)

// party is one packet and its result.
type party struct {
	name   string
	where  string
	spec   redpacket.Spec
	users  int64
	shares []redpacket.Share // taken, in the order of taking
	empty  int64             // users who came too late
	refund redpacket.Share
	ended  bool // the packet was refunded
	took   time.Duration
	faults []string
}

// hold sends a packet and lets all users tap. It waits for the end of the packet if anything is left, and checks the
// result.
func hold(ctx context.Context, o options) (p *party, status int, err error) {
	if o.seed != nil {
		o.packet.Rand = mrand.New(mrand.NewPCG(*o.seed, 0))
	}
	if o.name == "" {
		var b [4]byte
		rand.Read(b[:]) // never fails
		o.name = "redpacket-" + hex.EncodeToString(b[:])
	}
	packets, where, end, err := connect(o.addrs)
	if err != nil {
		return nil, exitBad, err
	}
	defer end()
	packet := packets.Packet(o.name)
	epoch, err := packet.Send(ctx, o.packet)
	switch {
	case errors.Is(err, redlatch.ErrAlreadyOpen):
		return nil, exitUsage,
			fmt.Errorf("-name %s: there is such a packet already; Redis keeps it until an hour after its end, choose "+
				"another name", o.name)
	case errors.Is(err, redlatch.ErrInvalidName):
		return nil, exitUsage, fmt.Errorf("-name %s: %w", o.name, err)
	case err != nil:
		return nil, exitBad, fmt.Errorf("sending the packet: %w", err)
	}
	p = &party{name: o.name, where: where, spec: o.packet, users: o.users}
	answers, err := p.tap(ctx, packet)
	if err != nil {
		return nil, exitBad, err
	}
	if err := p.close(ctx, packet); err != nil {
		return nil, exitBad, err
	}
	for s, err := range packet.Shares(ctx) {
		if err != nil {
			return nil, exitBad, fmt.Errorf("reading the shares: %w", err)
		}
		p.shares = append(p.shares, s)
	}
	p.check(answers, epoch)
	return p, exitOK, nil
}

// connect makes a client on these servers, or on one of its own.
func connect(addrs []string) (c *redpacket.Client, where string, end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range slices.Backward(ends) {
			f()
		}
	}
	where = "Redis at " + strings.Join(addrs, ", ")
	o := rueidis.ClientOption{InitAddress: addrs, DisableCache: true} // nothing here reads through a cache
	if len(addrs) == 0 {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.Start(); err != nil {
			return nil, "", end, fmt.Errorf("cannot start the embedded server: %w", err)
		}
		ends = append(ends, m.Close)
		where = "the embedded server"
		o.InitAddress, o.ForceSingleClient = []string{m.Addr()}, true
	}
	red, err := redlatch.Open(context.Background(), o, redlatch.Options{})
	if err != nil {
		end()
		return nil, "", nil, fmt.Errorf("cannot use %s: %w", where, err)
	}
	ends = append(ends, func() { red.Close(context.Background()) })
	return red.RedPackets(), where, end, nil
}

// answer is what one user got, the first and the second time.
type answer [2]redpacket.Share

// tap has every user tap twice, as impatient users do.
func (p *party) tap(ctx context.Context, packet *redpacket.Packet) ([]answer, error) {
	began := time.Now()
	answers := make([]answer, p.users)
	order := mrand.Perm(int(p.users))
	next := make(chan int, len(order))
	for _, i := range order {
		next <- i
	}
	close(next)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range tapping {
		wg.Go(func() {
			for i := range next {
				for n := range 2 {
					ctx, stop := context.WithTimeout(ctx, patience)
					s, err := packet.Grab(ctx, fmt.Sprintf("user-%04d", i+1))
					stop()
					if err != nil {
						cancel(fmt.Errorf("no answer for user-%04d: %w", i+1, err))
						return
					}
					answers[i][n] = s
				}
			}
		})
	}
	wg.Wait()
	p.took = time.Since(began)
	return answers, context.Cause(ctx)
}

// close waits for the packet's end, if anything is left, and refunds what is left.
func (p *party) close(ctx context.Context, packet *redpacket.Packet) error {
	st, err := packet.Inspect(ctx)
	if err != nil {
		return fmt.Errorf("reading the packet: %w", err)
	}
	if st.Taken == st.Shares {
		return nil
	}
	for {
		p.refund, err = packet.Refund(ctx)
		if !errors.Is(err, redpacket.ErrNotEnded) {
			break
		}
		if st, err = packet.Inspect(ctx); err != nil {
			return fmt.Errorf("reading the packet: %w", err)
		}
		select {
		case <-time.After(st.UntilEnd):
		case <-ctx.Done():
			return fmt.Errorf("stopped before the packet's end: %w", context.Cause(ctx))
		}
	}
	if err != nil {
		return fmt.Errorf("refunding what is left: %w", err)
	}
	p.ended = true
	return nil
}

// check compares the answers that users got with what the server has, and both with the promises.
func (p *party) check(answers []answer, epoch int64) {
	fault := func(format string, a ...any) { p.faults = append(p.faults, fmt.Sprintf(format, a...)) }
	var taken int64
	byUser := map[string]redpacket.Share{}
	for i, s := range p.shares {
		if _, twice := byUser[s.User]; twice {
			fault("%s took two shares", s.User)
		}
		if s.Ordinal != int64(i)+1 {
			fault("share %d is in place %d", s.Ordinal, i+1)
		}
		if s.Cents < p.spec.Min || p.spec.Max > 0 && s.Cents > p.spec.Max {
			fault("%s got %s, beyond the bounds", s.User, money(s.Cents))
		}
		if s.Epoch != epoch {
			fault("%s has a share of another packet", s.User)
		}
		byUser[s.User] = s
		taken += s.Cents
	}
	for i, a := range answers {
		user := fmt.Sprintf("user-%04d", i+1)
		kept, won := byUser[user]
		if s := a.other(kept, won); s != nil {
			fault("%s got the answer %v, %s, and has %s", user, cmp.Or(s.Outcome, "none"), money(s.Cents), money(kept.Cents))
		}
		if !won {
			p.empty++
		}
	}
	due := min(p.spec.Shares, p.users)
	if n := int64(len(p.shares)); n > p.spec.Shares || n != due && !p.ended {
		fault("%d shares were taken, and %d were due", n, due)
	}
	if sum := taken + p.refund.Cents; sum != p.spec.Total {
		fault("%s taken and %s refunded are %s, not %s", money(taken), money(p.refund.Cents), money(sum), money(p.spec.Total))
	}
}

// other is an answer that says something else than what is kept; nil: none does.
func (a answer) other(kept redpacket.Share, won bool) *redpacket.Share {
	for i, s := range a {
		if s.Won() != won || won && (s.Cents != kept.Cents || s.Ordinal != kept.Ordinal) {
			return &a[i]
		}
	}
	return nil
}

// best is the largest share.
func (p *party) best() (best redpacket.Share) {
	for _, s := range p.shares {
		if s.Cents > best.Cents {
			best = s
		}
	}
	return best
}

// bins counts the shares by amount in at most n intervals of equal width.
type bin struct {
	from, to int64 // cents, to is not in it
	count    int
}

func (p *party) bins(n int64) []bin {
	if len(p.shares) == 0 {
		return nil
	}
	low, high := p.shares[0].Cents, p.shares[0].Cents
	for _, s := range p.shares {
		low, high = min(low, s.Cents), max(high, s.Cents)
	}
	width := (high-low)/n + 1
	bins := make([]bin, (high-low)/width+1)
	for i := range bins {
		bins[i] = bin{from: low + int64(i)*width, to: low + int64(i+1)*width}
	}
	for _, s := range p.shares {
		bins[(s.Cents-low)/width].count++
	}
	return bins
}
