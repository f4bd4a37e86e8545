package ratelimit

import "github.com/redlatch/redlatch/internal/errs"

// ErrLimited: Wait would have to wait until after its context's deadline, or longer than LimiterOptions.MaxWait.
// Nothing was taken. The Admission returned with it says how long.
// All other errors are those of package redlatch.
var ErrLimited = errs.Passing("limited", "rate limited")

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = errs.Edge("ratelimit", *err) }
