package redpacket

import (
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// Refusals: nothing was sent, and sending the same again will be refused again.
var (
	// ErrInvalidName: the name of a packet or a user cannot be used: empty, too long (64 KiB, or 1024 bytes for a user), not
	// UTF-8, with a NUL byte, or, of a name, with braces. Every verb of the Packet returns that of its name.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption: an option or argument is outside its bounds; the text names the field and the value.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrClosed: the Client was closed, or its hub.
	ErrClosed = errs.ErrClosed
)

// Answers of the server by which nothing was changed there.
var (
	// ErrWrongType: a key holds another type of value: another program uses the same name.
	ErrWrongType = errs.ErrWrongType
	// ErrAlreadyOpen: the packet exists, sent by another call of Send, and its results are still retained. The epoch
	// returned with it is that of the one that stands.
	ErrAlreadyOpen = errs.ErrAlreadyOpen
	// ErrSending: another Send of that name is under way, or was broken off within the last minute. Nothing was sent.
	// A while later the packet is there (ErrAlreadyOpen), or the name is free.
	ErrSending = errors.New("another send is under way")
	// ErrSendLost: the parts of a large packet that were stored before were gone when the next one came: it paused for
	// too long, or the server lost them. No packet was opened; Send it again.
	ErrSendLost = errors.New("the parts sent before are gone")
	// ErrNotEnded: a packet is refunded when its time is over. Inspect tells when.
	ErrNotEnded = errors.New("not over yet")
	// ErrNoPacket: there is no red packet of that name to refund: never sent, retained no longer, or lost.
	ErrNoPacket = errors.New("no such red packet")
	// ErrCorrupt: the keys of a packet do not agree: records or shares are missing (evicted, deleted, lost in a failover) or a
	// number in it cannot be. Nobody gets anything more, because a user who has a share could be given a second one.
	ErrCorrupt = errs.ErrCorrupt
)

// Failures to get an answer.
var (
	// ErrUnavailable: the server did not run the request; nothing changed there. It wraps the cause: what rueidis
	// said, or ctx's error.
	ErrUnavailable = errs.ErrUnavailable
	// ErrDenied: the server does not know the user, or the user lacks a right; the text says which, as far as the server
	// tells, and for which operation. What a script wrote before the command that was refused stands: once the user has
	// the right, every verb can be called again with the same arguments.
	ErrDenied = errs.ErrDenied
	// ErrUnknownOutcome: the request was sent and no reply seen; it may have run, or may run yet. Every verb but Send can then
	// be called again, with the same arguments, and gives the one answer.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
	// ErrNotReplicated: it was done, but fewer than Options.MinReplicas replicas confirmed it in time, so that a
	// failover may forget it. Nothing is taken back: the same call is safe to repeat and gives the same answer once it is
	// confirmed.
	ErrNotReplicated = errs.ErrNotReplicated
)

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = errs.Edge("redpacket", *err) }

// edged is err as edge leaves it.
func edged(err error) error { return errs.Edge("redpacket", err) }

// malformed is a reply that none of our scripts gives.
func malformed(what, key string) error {
	return fmt.Errorf("unexpected reply to %s on %q", what, key)
}
