package election

import "github.com/redlatch/redlatch/internal/errs"

// The errors are those of package rlock, with the same values. Compare with errors.Is.
var (
	// ErrNotAcquired is returned by Campaign and Run if ctx ended before the candidate was elected. It is joined with
	// ctx's error and cause. The candidate has left the queue.
	ErrNotAcquired = errs.ErrNotAcquired
	// ErrLost says that a leadership ended without Resign: no heartbeat was confirmed for three Heartbeats, the lease ran
	// out, or the key was deleted, evicted or taken over. Another may lead. Stop, and have the resource refuse what was
	// under way.
	ErrLost = errs.ErrLost
	// ErrReleased is the cause of a leadership's contexts after Resign.
	ErrReleased = errs.ErrReleased
	// ErrMaxHold says that a leadership reached Options.MaxHold. There is no other leader until Resign, or until the lease
	// is over.
	ErrMaxHold = errs.ErrMaxHold
	// ErrUnavailable is returned if the server could not be asked, or refused before it did anything. It wraps rueidis'
	// error.
	ErrUnavailable = errs.ErrUnavailable
	// ErrUnknownOutcome is returned if a request was sent and its reply was not seen in time. What a candidate may have
	// been granted is released in the background.
	ErrUnknownOutcome = errs.ErrUnknownOutcome
	// ErrDenied is returned if the server does not know the user, or the user lacks a right, which the text names as far
	// as the server reports it. A candidate that may not announce itself is not elected.
	ErrDenied = errs.ErrDenied
	// ErrNotReplicated is returned by Campaign if fewer than Options.MinReplicas replicas confirmed the election in time.
	// It was taken back.
	ErrNotReplicated = errs.ErrNotReplicated
	// ErrClosed is returned after the client, or its hub, was closed.
	ErrClosed = errs.ErrClosed
	// ErrInvalidName refuses the name of an election, by the rules for locks. Nothing was sent.
	ErrInvalidName = errs.ErrInvalidName
	// ErrInvalidOption refuses an option or argument. The text names it, its value and its bounds. Nothing was sent.
	ErrInvalidOption = errs.ErrInvalidOption
	// ErrWrongType is returned if a key of the election holds something else. Nothing was changed.
	ErrWrongType = errs.ErrWrongType
)
