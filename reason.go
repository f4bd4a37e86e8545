package redlatch

import "github.com/redlatch/redlatch/internal/errs"

// Reason returns a short name for an error of any package of this module, even where it is wrapped or joined: a label
// for metrics. The names do not change from release to release:
//
//   - "ok" for nil;
//   - that of the exported error without Err, in lower case with underscores: "not_acquired" for ErrNotAcquired, "lost"
//     for ErrLost, "not_open" for stock.ErrNotOpen;
//   - "canceled" and "timeout" for context.Canceled and context.DeadlineExceeded;
//   - "other" for all else, such as an error of the caller's own work.
//
// An error that is several of these has the name of the first in this order: lost, max_hold, canceled, any other error
// of this module (the outermost), timeout. So a caller that left while it waited is "canceled", a caller whose time was
// over while another owner held the lock is "not_acquired", and work that returned its context's error because the lock
// was lost is "lost".
func Reason(err error) string { return errs.Reason(err) }

// Retryable reports whether the same call may succeed if it is made again, a while later, and does no harm then.
// The error that Reason names decides.
//
// True: not_acquired, unavailable and unknown_outcome, not_replicated, limited, sending, not_ended. An
// ErrUnknownOutcome is false if the call may have counted once already and would count again: the writing verbs of
// Counter (but AddOnce) and of CountingSemaphore, CountDownLatch.CountDown, and Hub.Publish.
//
// False: nil, all other errors, and the end of the caller's own context. After lost and max_hold the work was under
// way: whether it may be done again is for the caller to know.
//
// Retryable does not say when to retry. ratelimit.Admission has a RetryAfter. Locks have no such time: the lease in a
// NotAcquiredError is how long a crashed holder would still block you, 20 to 30 s however soon a living holder is done.
// Wait as long as the work usually takes.
func Retryable(err error) bool { return errs.Retryable(err) }
