package errs

// Errors of counters, sales and red packets.
var (
	// ErrOutOfRange: a value is beyond its bounds; nothing was written.
	ErrOutOfRange = New("out_of_range", "out of range")
	// ErrOverflow: a number does not fit; nothing was written.
	ErrOverflow = New("overflow", "overflow")
	// ErrMismatch: an id was used before with other arguments; nothing was changed.
	ErrMismatch = New("mismatch", "id used before with other arguments")
	// ErrAlreadyOpen: another call has sent the packet; nothing was changed.
	ErrAlreadyOpen = New("already_open", "already open")
	// ErrCorrupt: keys do not agree with each other; nothing is granted any more.
	ErrCorrupt = New("corrupt", "corrupt")
)
