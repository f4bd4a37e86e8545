package errs

import "errors"

// What counters, stocks and red packets answer alike.
var (
	// ErrOutOfRange: a value beyond its bounds; nothing was written.
	ErrOutOfRange = errors.New("out of range")
	// ErrOverflow: a number that does not fit; nothing was written.
	ErrOverflow = errors.New("overflow")
	// ErrMismatch: an id that was used before with other arguments; nothing was changed.
	ErrMismatch = errors.New("id used before with other arguments")
	// ErrAlreadyOpen: another call opened what is there; nothing was changed.
	ErrAlreadyOpen = errors.New("already open")
	// ErrCorrupt: keys that do not agree with each other; nothing is granted any more.
	ErrCorrupt = errors.New("corrupt")
)
