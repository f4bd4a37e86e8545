package redpacket

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

const (
	// sendPart is how many shares one script call stores: Lua's unpack does not take many more, and a call should not
	// keep the server for long.
	sendPart = 3900
	// sendLease is for how long an unfinished packet is kept, at least.
	sendLease = 30 * time.Second
)

// Send splits the total and opens the packet. It returns the epoch, which distinguishes the packet's answers from those
// of another packet under the same name. Nothing can be taken before all shares are stored. Send never overwrites: from
// the opening of a packet to the end of its retention, even if it is empty, over or refunded, another Send returns
// ErrAlreadyOpen with the epoch of the existing packet, and changes nothing.
//
// It takes one round trip, and one for every 3,900 shares. Each is repeated until answered. A copy that the network
// delivers after the call has ended, or a RetryTimeout later at most, opens nothing.
//
// Errors: ErrUnknownOutcome, after which the packet may be open, which the next Send says. ErrUnavailable, after which
// it is not open. If Send was broken off, what it stored vanishes within about half a minute, and until then another
// Send returns ErrSending. ErrNoPacket and ErrCorrupt if users or shares of a packet that was lost are there.
// ErrNotReplicated if the packet may be open and too few replicas know (Options.MinReplicas).
func (p *Packet) Send(ctx context.Context, o Spec) (epoch int64, err error) {
	defer edge(&err)
	if err := p.usable(); err != nil {
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
	if len(shares) > part { // a smaller packet may expire, and costs no timer
		p.c.calls.RemoveAfter(o.OpenFor+o.Retain, p.call(inspectScript))
	}
	return epoch, nil
}

var sendScript = script.Load("redpacket_send", files, "send")

// sendPart runs send.lua. Before the first part it asks for the server's time.
func (p *Packet) sendPart(ctx context.Context, id string, o Spec, first int, shares []int64) (epoch int64, err error) {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	args := append(make([]string, 0, 9+len(shares)), id, n(o.Shares), n(o.Total), script.Millis(o.OpenFor),
		script.Millis(o.Retain),
		script.Millis(max(sendLease, min(time.Hour, 2*p.c.calls.Bound()))), n(int64(first)), "", "0")
	until := &args[len(args)-2]
	if o.Ledger {
		args[len(args)-1] = "1"
	}
	if first > 0 {
		*until = "0" // a later part begins no packet
	}
	var v []int64
	for {
		call := p.call(sendScript, args...)
		if *until != "" {
			for _, s := range shares {
				call.Args = append(call.Args, n(s))
			}
			call = p.c.calls.Confirmed(call)
		}
		if v, err = p.run(ctx, call); err != nil {
			return 0, err
		}
		if v[0] != codeTime {
			break
		}
		*until = script.NotAfter(v[1], p.c.calls.Wanted(ctx))
	}
	switch v[0] {
	case codeOK:
		return v[1], nil
	case codeSent:
		return v[1], fmt.Errorf("%w: %q, epoch %d", errs.ErrAlreadyOpen, p.name, v[1])
	case codeNoParts:
		return 0, fmt.Errorf("%w: the parts of %q sent before are gone: %d of the first %d shares are there",
			errs.ErrUnavailable, p.keys[0], v[1], first)
	}
	return 0, p.malformed()
}
