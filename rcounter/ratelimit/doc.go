// Package ratelimit lets units through at a rate that all processes share, on Redis: what a sale puts in front of itself.
//
// # What is promised
//
// In any interval of length T no more than Burst + T * Rate / Per units pass, whoever asks, from whatever process, in
// the server's own time. It is for admission, and allocates nothing: a reply that is lost may count its units twice, so too few
// pass then, never too many.
//
// # What is not
//
// A key that is lost (evicted, deleted, a failover) is as if nobody had come: up to Burst units too many pass. So does a server's
// clock that is set forward.
//
// # Errors
//
// ErrLimited is the only refusal that is not a mistake. The others: refused before anything was sent (ErrInvalidName,
// ErrInvalidOption, ErrClosed), refused by the server (ErrWrongType, ErrDenied), never run (ErrUnavailable), unknown
// (ErrUnknownOutcome). A call lasts until its context ends, and one whose context has no deadline for at most five call
// timeouts, within which it is sent again until it is answered.
//
// # Keys
//
// S is Options.KeyPrefix and the name of a limiter, which may not contain braces.
//
//	rc:{S:key}:qN  string  a limit of one key: at;level;per;id; N is the length of S; rc:{S}:qN without a key
//
// # Cost
//
// Every verb is one round trip of one EVALSHA; none with LimiterOptions.PerProcess.
package ratelimit
