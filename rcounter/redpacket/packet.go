package redpacket

import (
	"context"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// Packet is an amount of money that is split into shares. Each user takes one share, first come, first served, until
// none is left or the time is over; what is left then goes back to the sender. All amounts are whole cents. A Packet is
// an immutable description, safe for concurrent use, and costs nothing until used.
type Packet struct {
	c       *Client
	name    string
	keys    []string // the packet's hash, the list of shares, the hash of users, the ledger
	refused error    // what is wrong with the name

	known atomic.Pointer[grabs]
}

// Packet describes the red packet called name. It sends nothing. If the name cannot be used, for example because it has
// braces, every verb of the result fails with ErrInvalidName. A stock of the same name is another object.
func (c *Client) Packet(name string) *Packet {
	p := &Packet{c: c, name: name}
	var tag string
	tag, p.refused = keyname.Braced(c.calls.KeyPrefix, name, "a red packet")
	p.refused = edged(p.refused)
	p.keys = []string{tag + ":p", tag + ":a", tag + ":g", tag + ":e"}
	return p
}

// grabs are the grabs of a packet's users that share calls. All Packet values of a name in a process have the same.
type grabs struct {
	batch.Batcher[string, Share]
}

// batcher is what this process keeps of the packet.
func (p *Packet) batcher() *grabs {
	if g := p.known.Load(); g != nil {
		return g
	}
	c := p.c
	g := c.packets.Of(p.keys[0], func() *grabs {
		own := &Packet{c: c, name: p.name, keys: p.keys} // not the caller's, which refers to what is made here
		return &grabs{batch.Batcher[string, Share]{Options: &c.batch, Shared: c.calls.TellShared(own.name),
			What: "grab", Key: p.keys[0], Run: batch.Each(own.grab, Share.Won)}}
	})
	p.known.Store(g)
	return g
}

// usable is why no verb of p can run.
func (p *Packet) usable() error { return p.c.calls.Usable(p.refused) }

// call is a call of one of the packet's scripts, which all may run twice.
func (p *Packet) call(sc *script.Script, args ...string) script.Call {
	return script.Call{Script: sc, Keys: p.keys, Args: args}
}

// run runs a script. The reply has at least three integers and no error. With ErrNotReplicated the reply is there, too.
func (p *Packet) run(ctx context.Context, call script.Call) ([]int64, error) {
	m, unconfirmed := p.c.calls.Do(ctx, call)
	if unconfirmed != nil && !script.IsUnreplicated(unconfirmed) {
		return nil, unconfirmed
	}
	v, err := m.AsIntSlice()
	switch {
	case err != nil || len(v) < 3:
		return nil, p.malformed()
	case v[0] < 0:
		return nil, p.verdict([3]int64(v))
	}
	return v, unconfirmed
}
