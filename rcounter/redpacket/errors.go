package redpacket

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// These are answers of the server, by which nothing was changed there. All other errors are those of package redlatch.
var (
	// ErrNoPacket: the server has no such red packet, or only a part of it; then the error is redlatch.ErrCorrupt too.
	// The packet was never sent, its retention is over, or it was lost. No user gets anything more. Look in your own
	// records. Every verb returns it, and only Send makes a packet.
	ErrNoPacket = errs.New("no_packet", "no such red packet")
	// ErrSending: a Send of that name is running, or was broken off within the last minute. Ask again: a while later the
	// packet is there, or the name is free. Every verb but Ledger returns it.
	ErrSending = errs.Passing("sending", "another send is in progress")
	// ErrNotEnded: a packet can be refunded when its time is over. Packet.Inspect says when that is.
	ErrNotEnded = errs.Passing("not_ended", "not over yet")
)

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = edged(*err) }

func edged(err error) error { return errs.Edge("redpacket", err) }

// The first numbers of replies: see begin in packet.lua, and send.lua.
const (
	codeOK       = 0
	codeSent     = 2 // followed by the epoch
	codeNoParts  = 3 // followed by how many shares are stored
	codeNotEnded = 4 // followed by the ms to the end
	codeTime     = 5 // followed by the server's ms
	codeCorrupt  = -1
	codeNone     = -6
	codeSending  = -10
	codeLedger   = -13 // followed by how many entries there should be, and are
)

// verdict turns the front of a reply into an error.
func (p *Packet) verdict(head [3]int64) error {
	key := p.keys[0]
	switch {
	case head[0] == codeOK:
		return nil
	case head[0] == codeNone:
		return fmt.Errorf("%w: %q", ErrNoPacket, key)
	case head[0] == codeSending:
		return fmt.Errorf("%w: of %q", ErrSending, key)
	case head[0] == codeCorrupt && head[1] < 0:
		return fmt.Errorf("%w: %w: %q has impossible numbers", ErrNoPacket, errs.ErrCorrupt, key)
	case head[0] == codeCorrupt:
		return fmt.Errorf("%w: %w: %q should have %d records or shares, and has %d", ErrNoPacket, errs.ErrCorrupt, key,
			head[1], head[2])
	case head[0] == codeLedger:
		return fmt.Errorf("%w: %w: the ledger %q should have %d entries, and has %d", ErrNoPacket, errs.ErrCorrupt,
			p.keys[3], head[1], head[2])
	}
	return p.malformed()
}

// malformed is the error of a reply that no script of ours gives.
func (p *Packet) malformed() error {
	return fmt.Errorf("unexpected reply to a script of %q", p.keys[0])
}
