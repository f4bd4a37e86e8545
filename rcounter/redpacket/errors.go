package redpacket

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// These are answers of the server, by which nothing was changed there. All other errors are those of package redlatch.
var (
	// ErrNotEnded: a packet can be refunded when its time is over. Packet.Inspect says when that is.
	ErrNotEnded = errs.Passing("not_ended", "not over yet")
	// ErrSending: another Send of that name is running, or was broken off within the last minute. Nothing changed.
	// A while later the packet is there (ErrAlreadyOpen), or the name is free.
	ErrSending = errs.Passing("sending", "another send is under way")
	// ErrNoPacket: there is no red packet of that name to refund: it was never sent, its retention is over, or it was
	// lost.
	ErrNoPacket = errs.New("no_packet", "no such red packet")
)

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = edged(*err) }

func edged(err error) error { return errs.Edge("redpacket", err) }

// malformed is the error of a reply that no script of ours gives.
func malformed(what, key string) error {
	return fmt.Errorf("unexpected reply to %s on %q", what, key)
}

// corrupt says what of key does not fit together.
func corrupt(key string, recorded, found int64) error {
	if recorded < 0 {
		return fmt.Errorf("%w: %q has impossible numbers", errs.ErrCorrupt, key)
	}
	return fmt.Errorf("%w: %q counts %d records or shares, and %d are there", errs.ErrCorrupt, key, recorded, found)
}

// misled says what of a ledger is missing.
func misled(key string, should, found int64) error {
	return fmt.Errorf("%w: the ledger %q should have %d entries, and has %d", errs.ErrCorrupt, key, should, found)
}
