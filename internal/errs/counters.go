package errs

import "errors"

// These are common to counters, stocks and red packets.
var (
	// ErrOutOfRange: a value is beyond its bounds; nothing was written.
	ErrOutOfRange = errors.New("out of range")
	// ErrOverflow: a number does not fit; nothing was written.
	ErrOverflow = errors.New("overflow")
	// ErrMismatch: an id was used before with other arguments; nothing was changed.
	ErrMismatch = errors.New("id used before with other arguments")
	// ErrAlreadyOpen: another call has opened it; nothing was changed.
	ErrAlreadyOpen = errors.New("already open")
	// ErrCorrupt: keys do not agree with each other; nothing is granted any more.
	ErrCorrupt = errors.New("corrupt")
)
