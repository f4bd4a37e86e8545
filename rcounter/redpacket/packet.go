package redpacket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Packet is an amount of money that is split into shares, of which each user takes one, first come, first served,
// until none is left or the time is over; what is left then goes back to the sender. It is an immutable description,
// safe for concurrent use, and costs nothing until used. All amounts are whole cents.
//
// The shares are drawn once, by Send, and stored; a Grab takes the next. So their sum is exact whatever happens later:
// what was taken, what is left and what was refunded always add up to the total. A user who has a share gets the same
// answer however often it is asked for, within the packet's retention. The packet fails closed: if records or shares
// are missing on the server, nobody gets anything more, and the answer is ErrCorrupt.
//
// Not promised: what a failover loses. Money should move by entries that are unique over (packet, epoch, user) and,
// for the refund, over (packet, epoch).
type Packet struct {
	c       *Client
	name    string
	keys    []string // the packet's hash, the shares' list, the users' hash
	refused error    // what is wrong with the name

	grabs batch.Batcher[string, Share] // by user
}

// Packet describes the red packet called name. Nothing is sent. A name that cannot be used, braces included, makes
// every verb of the result fail with ErrInvalidName. A stock of the same name is another thing.
func (c *Client) Packet(name string) *Packet {
	p := &Packet{c: c, name: name}
	var tag string
	tag, p.refused = keyname.Braced(c.calls.Prefix(), name, "a red packet")
	p.refused = edged(p.refused)
	p.keys = []string{tag + ":p", tag + ":a", tag + ":g"}
	p.grabs = batch.Batcher[string, Share]{Options: &c.batch, Spawn: c.calls.Finish, Bound: c.calls.Bound(), Patience: session.ErrPatience, What: "grab", Key: p.keys[0], Run: p.runGrabs}
	return p
}

// Spec is what a red packet is sent with. Durations are counted on the server's clock from the moment the packet
// opens; fractions of a millisecond are rounded up.
type Spec struct {
	// Total is the amount in cents, 1 to maxTotal. Required.
	Total int64
	// Shares is into how many it is split, 1 to maxShares. Required.
	Shares int64
	// Min is the least a share may be, in cents. Defaults to 1.
	Min int64
	// Max is the most a share may be, in cents. Defaults to 0: no most.
	Max int64
	// Method is how it is split. Defaults to DoubleMean.
	Method Method
	// OpenFor is how long shares can be taken, at least a millisecond. Required.
	OpenFor time.Duration
	// Retain is how long after that the answers stay, at least a millisecond. Until then a user's Grab gives the same
	// answer, the packet can be refunded, and the name cannot be used again. Defaults to defaultRetain.
	Retain time.Duration
	// Rand draws the shares. Defaults to nil: a generator that nobody can predict.
	Rand *rand.Rand
}

func (o *Spec) check() error {
	if o.Min == 0 {
		o.Min = 1
	}
	if _, err := checkSplit(o.Total, o.Shares, o.Min, o.Max, o.Method, [...]string{"Total", "Shares", "Min", "Max", "Method"}); err != nil {
		return err
	}
	switch {
	case o.OpenFor < time.Millisecond || o.OpenFor > maxLifetime:
		return errs.InvalidOption("OpenFor", o.OpenFor, fmt.Sprintf("between 1ms and %v", maxLifetime))
	case o.Retain < 0 || o.Retain > 0 && o.Retain < time.Millisecond || o.Retain > maxLifetime:
		return errs.InvalidOption("Retain", o.Retain, fmt.Sprintf("between 1ms and %v, or 0 for the default", maxLifetime))
	}
	if o.Retain == 0 {
		o.Retain = defaultRetain
	}
	if o.OpenFor+o.Retain > maxLifetime {
		return errs.InvalidOption("OpenFor + Retain", fmt.Sprintf("%v + %v", o.OpenFor, o.Retain), fmt.Sprintf("at most %v", maxLifetime))
	}
	return nil
}

const (
	// defaultRetain is the default of Spec.Retain.
	defaultRetain = 24 * time.Hour
	// maxLifetime is the longest time from Send to the removal of the packet.
	maxLifetime = 100 * 365 * 24 * time.Hour
	// sendPart is how many shares one script call stores: Lua's unpack does not take many more, and a call should not
	// keep the server for long.
	sendPart = 3900
	// sendLease is for how long an unfinished sending is kept, at least.
	sendLease = 30 * time.Second
)

// Send splits the total and opens the packet, and returns the epoch by which its answers can be told from those of
// another packet under the same name. Nothing can be taken before all shares are stored. It never overwrites: while a
// packet of that name is there, empty, over or refunded included, until its retention is over, another Send is
// ErrAlreadyOpen, with the epoch of the one that stands, and changes nothing.
//
// One round trip, and one for every 3,900 shares, each repeated until answered; a copy that the network delivers when the
// call has ended, by five call timeouts or more, opens nothing. After ErrUnknownOutcome the packet may be open,
// which the next Send will say; a sending that was broken off vanishes by itself within about half a minute, in which
// another is ErrSending. ErrSendLost: broken off by the server, not open. ErrCorrupt: records or shares of a packet
// that is lost are there. ErrNotReplicated: it may be open, and too few replicas know (Options.MinReplicas).
func (p *Packet) Send(ctx context.Context, o Spec) (epoch int64, err error) {
	defer edge(&err)
	if err := p.c.calls.Usable(p.refused); err != nil {
		return 0, err
	}
	if err := o.check(); err != nil {
		return 0, err
	}
	shares, err := Split(o.Total, o.Shares, o.Min, o.Max, o.Method, o.Rand)
	if err != nil {
		return 0, err
	}
	return p.send(ctx, session.CallID(), o, shares, sendPart)
}

// send stores shares in parts.
func (p *Packet) send(ctx context.Context, id string, o Spec, shares []int64, part int) (epoch int64, err error) {
	for at := 0; at < len(shares); at += part {
		if epoch, err = p.sendPart(ctx, id, o, at, shares[at:min(at+part, len(shares))]); err != nil {
			return epoch, err
		}
	}
	if len(shares) > part { // a smaller one may expire, and costs no timer
		p.c.calls.RemoveAfter(o.OpenFor+o.Retain, p.look("", 0))
	}
	return epoch, nil
}

var packetSendScript = script.Load("redpacket_send", files, "send")

// sendPart runs send.lua; for the first part, it asks for the server's time before.
func (p *Packet) sendPart(ctx context.Context, id string, o Spec, first int, shares []int64) (epoch int64, err error) {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	args := append(make([]string, 0, 8+len(shares)), id, n(o.Shares), n(o.Total), script.Millis(o.OpenFor), script.Millis(o.Retain),
		script.Millis(max(sendLease, min(time.Hour, 2*p.c.calls.Bound()))), n(int64(first)), "")
	until := &args[len(args)-1]
	if first > 0 {
		*until = "0" // it begins none
	}
	var v []int64
	for {
		if *until == "" {
			v, err = p.reply(ctx, 2, script.Call{Script: packetSendScript, Keys: p.keys, Args: args})
		} else {
			all := slices.Clone(args)
			for _, s := range shares {
				all = append(all, n(s))
			}
			v, err = p.sure(ctx, 2, packetSendScript, all...)
		}
		if err != nil {
			return 0, err
		}
		if v[0] != 4 {
			break
		}
		*until = script.NotAfter(v[1], p.c.calls.Wanted(ctx))
	}
	switch v[0] {
	case 0:
		return v[1], nil
	case 1:
		return 0, fmt.Errorf("%w: of %q", ErrSending, p.keys[0])
	case 2:
		return v[1], fmt.Errorf("%w: %q, epoch %d", ErrAlreadyOpen, p.name, v[1])
	case 3:
		return 0, fmt.Errorf("%w: of %q, %d of the first %d shares are there", ErrSendLost, p.keys[0], v[1], first)
	}
	return 0, p.verdict(v)
}

// Share is the answer to a Grab, and one line of Shares.
type Share struct {
	User string
	// Outcome is Granted the first time and Replayed from then on; SoldOut: none is left; NotOpen: there is no such
	// packet; Ended: its time is over.
	Outcome Outcome
	// Ordinal is the place in the order of taking, from 1, if Won.
	Ordinal int64
	// Cents is the amount, if Won.
	Cents int64
	// Left and LeftCents are how many shares were left when the server answered, and their sum: 0 after a refund. Not
	// set by Shares.
	Left, LeftCents int64
	// Epoch is the sending that answered, as Send returned it; 0 if NotOpen.
	Epoch int64
}

// Won reports whether the user has a share: Granted or Replayed.
func (s Share) Won() bool { return s.Outcome == Granted || s.Outcome == Replayed }

// Grab takes a share for user. One round trip, repeated until answered, which those who grab through one value at the
// same time share (Options.Combine).
//
// The answer to a user who has a share is always that share, empty, over, refunded or not, while the packet is
// retained. So a caller who got an error, ErrUnknownOutcome above all, repeats Grab until it is answered. A request
// given up on may still be served: the user then has a share that the next Grab tells.
//
// Errors: ErrInvalidName for the user, ErrCorrupt, ErrNotReplicated, ErrWrongType, ErrUnavailable, ErrUnknownOutcome; the Share is then
// zero, and Won is false.
func (p *Packet) Grab(ctx context.Context, user string) (_ Share, err error) {
	defer edge(&err)
	if err := p.c.calls.Usable(p.refused); err != nil {
		return Share{}, err
	}
	if err := keyname.Required("claimant", user); err != nil {
		return Share{}, err
	}
	return p.grabs.Do(ctx, user)
}

// runGrabs is a call of Grab.
func (p *Packet) runGrabs(ctx context.Context, requests []*batch.Request[string, Share]) {
	users := make([]string, len(requests))
	for i, r := range requests {
		users[i] = r.Ask
	}
	shares, err := p.grab(ctx, session.CallID(), users)
	for i, r := range requests {
		if shares == nil || err != nil && shares[i].Won() {
			r.Err = err
		} else {
			r.Answer = shares[i] // what was refused needs no replica
		}
	}
}

var packetGrabScript = script.Load("redpacket_grab", files, "grab")

// grab runs grab.lua for at most 128 users; the shares are in their order. With ErrNotReplicated they are there
// too.
func (p *Packet) grab(ctx context.Context, id string, users []string) ([]Share, error) {
	v, unconfirmed := p.sure(ctx, 3, packetGrabScript, append([]string{id, p.c.calls.Mark()}, users...)...)
	if v == nil {
		return nil, unconfirmed
	}
	if err := p.verdict(v); err != nil {
		return nil, err
	}
	if len(v) != 4+3*len(users) {
		return nil, malformed("grab", p.keys[0])
	}
	shares := make([]Share, len(users))
	for i := range shares {
		o := v[4+3*i:]
		shares[i] = Share{User: users[i], Outcome: Outcome(o[0]), Ordinal: o[1], Cents: o[2], Left: v[2], LeftCents: v[3], Epoch: v[1]}
	}
	return shares, unconfirmed
}

// Refund is what went back to the sender of a red packet.
type Refund struct {
	Cents  int64
	Shares int64 // how many were not taken
	// First reports that this call took the rest back; later calls are told the same amount again.
	First bool
	Epoch int64 // the sending that was refunded, as Send returned it
}

// Refund takes back what is left when the packet's time is over: Cents, 0 if nothing is. From then on nobody can take
// a share, and the packet's own books are closed: what was taken and what was refunded add up to the total.
//
// It happens once. Who calls again, because the reply was lost or because another worker did it, is told the same
// amount, and that it was not First. So pay it out by an entry that is unique over (packet, epoch), not by First: the
// caller who was First may have died before it paid. It must happen within the packet's retention: afterwards the
// server has forgotten the packet, and the error is ErrNoPacket.
//
// ErrNotEnded before the end, even if all shares are taken. ErrNotReplicated as for Grab. One round trip, repeated until answered.
func (p *Packet) Refund(ctx context.Context) (_ Refund, err error) {
	defer edge(&err)
	if err := p.c.calls.Usable(p.refused); err != nil {
		return Refund{}, err
	}
	return p.refund(ctx, session.CallID())
}

var packetRefundScript = script.Load("redpacket_refund", files, "refund")

// refund runs refund.lua.
func (p *Packet) refund(ctx context.Context, id string) (Refund, error) {
	v, unconfirmed := p.sure(ctx, 3, packetRefundScript, id, p.c.calls.Mark())
	if v == nil {
		return Refund{}, unconfirmed
	}
	switch {
	case v[0] == 1:
		return Refund{}, fmt.Errorf("%w: %q, for another %v", ErrNotEnded, p.name, script.Duration(v[2]))
	case v[0] == 2:
		return Refund{}, fmt.Errorf("%w: %q", ErrNoPacket, p.keys[0])
	case v[0] == 0 && len(v) == 5 && unconfirmed != nil:
		return Refund{}, unconfirmed
	case v[0] == 0 && len(v) == 5:
		return Refund{Epoch: v[1], Cents: v[2], Shares: v[3], First: v[4] == 1}, nil
	}
	return Refund{}, p.verdict(v)
}

// State is where a red packet is in its life.
type State uint8

// The states of a red packet. Empty is none of them: it is an open packet with no shares left.
const (
	StateAbsent   State = iota // never sent, retained no longer, or lost
	StateSending               // being sent: nothing can be taken yet
	StateOpen                  // shares can be taken while any are left
	StateEnded                 // its time is over, and what is left not yet refunded
	StateRefunded              // what was left is refunded
)

var stateNames = [...]string{"absent", "sending", "open", "ended", "refunded"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// Status is a red packet as it was when the server answered. Total is TakenCents plus RefundedCents plus what is
// left.
type Status struct {
	State                            State
	Shares, Taken                    int64
	Total, TakenCents, RefundedCents int64 // in cents
	Epoch                            int64 // as Send returned it
	// Times left on the server's clock, 0 when past.
	UntilEnd, UntilGone time.Duration
}

// Inspect reads the packet; all zero, StateAbsent, if there is none. One round trip, repeated until answered. With
// ErrCorrupt for records or shares that are missing the status is what the packet itself says.
func (p *Packet) Inspect(ctx context.Context) (_ Status, err error) {
	defer edge(&err)
	if err := p.c.calls.Usable(p.refused); err != nil {
		return Status{}, err
	}
	pg, err := p.page(ctx, "", 0)
	return pg.status, err
}

// sharesPage is about how many records one call of Shares reads.
const sharesPage = 500

// Shares is who took what, in the order of taking; none for a packet that is not there. It reads all of them, in a
// round trip for about 500, before it hands out the first: every share taken before the call is among them, one taken
// meanwhile may be. After an error, which comes alone, it ends.
func (p *Packet) Shares(ctx context.Context) iter.Seq2[Share, error] {
	return func(yield func(Share, error) bool) {
		shares, err := p.all(ctx, sharesPage)
		if err != nil {
			yield(Share{}, edged(err))
			return
		}
		for _, s := range shares {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (p *Packet) all(ctx context.Context, size int) ([]Share, error) {
	if err := p.c.calls.Usable(p.refused); err != nil {
		return nil, err
	}
	byOrdinal := map[int64]Share{} // a scan may show an entry twice
	for cursor, epoch := "0", int64(0); ; {
		pg, err := p.page(ctx, cursor, size)
		if err != nil {
			return nil, err
		}
		if epoch == 0 {
			epoch = pg.status.Epoch
		}
		if pg.status.Epoch != epoch {
			return nil, fmt.Errorf("%w: %q went away while it was read", ErrNoPacket, p.keys[0])
		}
		for _, s := range pg.shares {
			s.Epoch = epoch
			byOrdinal[s.Ordinal] = s
		}
		if cursor = pg.next; cursor == "0" {
			break
		}
	}
	shares := make([]Share, 0, len(byOrdinal))
	for _, s := range byOrdinal {
		shares = append(shares, s)
	}
	slices.SortFunc(shares, func(a, b Share) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	for i, s := range shares {
		if s.Ordinal != int64(i)+1 { // a gap, before one that came later: taken meanwhile
			return shares[:i], nil
		}
	}
	return shares, nil
}

var packetStatusScript = script.Load("redpacket_status", files, "status")

type packetPage struct {
	status Status
	next   string // "0": no more
	shares []Share
}

// look is status.lua; from is the cursor of the page of records wanted, "" for none.
func (p *Packet) look(from string, size int) script.Call {
	return script.Call{Script: packetStatusScript, Keys: p.keys, Args: []string{from, strconv.Itoa(size)}}
}

// page runs it.
func (p *Packet) page(ctx context.Context, from string, size int) (packetPage, error) {
	m, err := p.c.calls.Do(ctx, p.look(from, size))
	if err != nil {
		return packetPage{}, err
	}
	bad := malformed("a red packet's status", p.keys[0])
	parts, err := m.ToArray()
	if err != nil || len(parts) != 3 {
		return packetPage{}, bad
	}
	v, err1 := parts[0].AsIntSlice()
	next, err2 := parts[1].ToString()
	records, err3 := parts[2].AsStrSlice()
	if errors.Join(err1, err2, err3) != nil || len(v) != 10 || len(records)%2 != 0 {
		return packetPage{}, bad
	}
	states := map[int64]State{0: StateSending, 1: StateOpen, 2: StateRefunded, 3: StateAbsent, 4: StateEnded}
	state, ok := states[v[0]]
	if !ok {
		return packetPage{}, corruptPacket(p.keys[0], -1, 0)
	}
	pg := packetPage{next: next, status: Status{State: state, Epoch: v[1], Shares: v[2], Total: v[3], Taken: v[4], TakenCents: v[5],
		RefundedCents: v[6], UntilEnd: script.Duration(max(0, v[7])), UntilGone: script.Duration(max(0, v[8]))}}
	if v[9] != 0 {
		return pg, fmt.Errorf("%w: records or shares of %q are missing", ErrCorrupt, p.keys[0])
	}
	for i := 0; i < len(records); i += 2 {
		f := strings.SplitN(records[i+1], ";", 3)
		if len(f) != 3 {
			return packetPage{}, corruptPacket(p.keys[0], -1, 0)
		}
		ordinal, err1 := strconv.ParseInt(f[0], 10, 64)
		cents, err2 := strconv.ParseInt(f[1], 10, 64)
		if errors.Join(err1, err2) != nil {
			return packetPage{}, corruptPacket(p.keys[0], -1, 0)
		}
		pg.shares = append(pg.shares, Share{User: records[i], Outcome: Replayed, Ordinal: ordinal, Cents: cents})
	}
	return pg, nil
}

// sure runs one of the packet's scripts, which all may run twice, has it confirmed by Options.MinReplicas, and decodes
// its reply of at least n integers, which is there with ErrNotReplicated too.
func (p *Packet) sure(ctx context.Context, n int, sc *script.Script, args ...string) ([]int64, error) {
	return p.reply(ctx, n, p.c.calls.Confirmed(script.Call{Script: sc, Keys: p.keys, Args: args}))
}

func (p *Packet) reply(ctx context.Context, n int, call script.Call) ([]int64, error) {
	m, unconfirmed := p.c.calls.Do(ctx, call)
	if unconfirmed != nil && !errors.Is(unconfirmed, errs.ErrNotReplicated) {
		return nil, unconfirmed
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) < n {
		return nil, malformed("a red packet's script", p.keys[0])
	}
	return v, unconfirmed
}

// verdict turns the front of a script's reply into an error.
func (p *Packet) verdict(v []int64) error {
	switch {
	case v[0] == 0:
		return nil
	case v[0] == -1 && len(v) >= 3:
		return corruptPacket(p.keys[0], v[1], v[2])
	}
	return malformed("a red packet's script", p.keys[0])
}

// corruptPacket says what of key does not fit together.
func corruptPacket(key string, recorded, found int64) error {
	if recorded < 0 {
		return fmt.Errorf("%w: %q has numbers that cannot be", ErrCorrupt, key)
	}
	return fmt.Errorf("%w: %q counts %d records or shares, and %d are there", ErrCorrupt, key, recorded, found)
}
