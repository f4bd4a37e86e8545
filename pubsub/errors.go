package pubsub

import "github.com/redlatch/redlatch/internal/errs"

var (
	// ErrClosed is returned by calls on a closed hub or subscription, and by Next when either is closed while it waits.
	ErrClosed = errs.ErrClosed
	// ErrDenied: the server does not know the user (Username, Password), or the user lacks a right. The text says which
	// right, as far as the server reports it. Nothing was published or subscribed. Asking again does not help.
	ErrDenied = errs.ErrDenied
	// ErrUnavailable: the server could not be asked, or it refused. Nothing was published or subscribed. The error wraps
	// rueidis' own.
	ErrUnavailable = errs.ErrUnavailable
	// ErrUnknownOutcome is returned by Publish when the message was sent and no reply was seen: it may have been
	// delivered.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
	// ErrInvalidName refuses a channel name that is empty, over 64 KiB or not UTF-8. Nothing was sent.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption refuses an option that is out of its bounds. The text names the field and the value. Nothing was
	// sent.
	ErrInvalidOption = errs.ErrInvalidOption
)
