package redpacket

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// The server refused.
var (
	// ErrNotEnded: a packet can be refunded when its time is over. Packet.Inspect says when that is.
	ErrNotEnded = errs.Passing("not_ended", "not over yet")
	// ErrAlreadyOpen: the packet exists, sent by another call of Send, and its retention is not over. The epoch returned
	// with it is that of the existing packet. Nothing changed.
	ErrAlreadyOpen = errs.ErrAlreadyOpen
	// ErrCorrupt: the keys of a packet do not agree: records, shares or entries of its ledger are missing (evicted,
	// deleted, trimmed, lost in a failover) or it has impossible numbers. No user gets anything more, because a user who
	// has a share could get a second one.
	ErrCorrupt = errs.ErrCorrupt
	// ErrSending: another Send of that name is running, or was broken off within the last minute. Nothing changed.
	// A while later the packet is there (ErrAlreadyOpen), or the name is free.
	ErrSending = errs.Passing("sending", "another send is under way")
	// ErrWrongType: a key holds another type of value: another program uses the same name. Nothing changed.
	ErrWrongType = errs.ErrWrongType
	// ErrDenied: the server does not know the user, or the user lacks a right. The text says which right and for which
	// operation, as far as the server reports it. What a script wrote before the refused command stands: once the user has
	// the right, every verb can be called again with the same arguments.
	ErrDenied = errs.ErrDenied
	// ErrNoPacket: there is no red packet of that name to refund: it was never sent, its retention is over, or it was
	// lost.
	ErrNoPacket = errs.New("no_packet", "no such red packet")
)

// The request did not run: nothing changed on the server.
var (
	// ErrInvalidName: the name of a packet or a user cannot be used. It is empty, too long (64 KiB for a name with its
	// prefix, 1024 bytes for a user), not UTF-8, or has a NUL byte, or the name has braces. Every verb of the Packet
	// returns the error of its name. Nothing was sent.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption: an option or argument is outside its bounds; the text names the field and the value. Nothing was
	// sent.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrClosed: the Client or its hub was closed. Nothing was sent.
	ErrClosed = errs.ErrClosed
	// ErrUnavailable: the server did not run the request. It wraps the cause: the error of rueidis, or of ctx. Of Send,
	// also: the parts of a large packet that were stored before were gone when the next one came, because Send paused for
	// too long or the server lost them. No packet was opened; call Send again.
	ErrUnavailable = errs.ErrUnavailable
)

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = edged(*err) }

func edged(err error) error { return errs.Edge("redpacket", err) }

// The outcome is not known, or not safe from a failover.
var (
	// ErrUnknownOutcome: the request was sent and no reply came; it may have run, or may still run. Every verb but Send
	// can then be called again with the same arguments, and gives the one answer.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
	// ErrNotReplicated: the request ran, but fewer than Options.MinReplicas replicas confirmed it in time, so a failover
	// may forget it. Nothing is taken back: call the verb again with the same arguments, and it gives the same answer once
	// that is confirmed.
	ErrNotReplicated = errs.ErrNotReplicated
)

// malformed is the error of a reply that no script of ours gives.
func malformed(what, key string) error {
	return fmt.Errorf("unexpected reply to %s on %q", what, key)
}

// corrupt says what of key does not fit together.
func corrupt(key string, recorded, found int64) error {
	if recorded < 0 {
		return fmt.Errorf("%w: %q has impossible numbers", ErrCorrupt, key)
	}
	return fmt.Errorf("%w: %q counts %d records or shares, and %d are there", ErrCorrupt, key, recorded, found)
}

// misled says what of a ledger is missing.
func misled(key string, should, found int64) error {
	return fmt.Errorf("%w: the ledger %q should have %d entries, and has %d", ErrCorrupt, key, should, found)
}
