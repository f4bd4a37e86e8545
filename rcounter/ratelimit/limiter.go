package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// maxWait is the default and the bound of LimiterOptions.MaxWait.
const maxWait = 24 * time.Hour

// LimiterOptions describe a Limiter. They are not stored on the server: all users of a name must
// pass the same ones. If they change, the units that passed before still count.
type LimiterOptions struct {
	// Rate is how many units pass in every Per, 1 to 1,000,000,000. Required.
	Rate int64
	// Per is the period, whole microseconds up to 366 days. Defaults to a second.
	Per time.Duration
	// Burst is how many units may pass at once after a pause, at least 1; Burst times Per in microseconds is at most
	// 2^52. Defaults to 1: units pass evenly spaced, Per / Rate apart.
	Burst int64
	// MaxWait is the longest time for which Wait waits, 1 ms to 24 hours. Units of a Wait whose caller leaves are given back only if no
	// call came after it, and else count until their turn: many callers that leave close the limiter for so long. So set it where
	// callers may leave, as with the context of an HTTP request, to the longest time for which a caller stays. Defaults to 24 hours.
	MaxWait time.Duration
	// PerProcess limits each process by itself: nothing is sent, and nothing is shared. It bounds what one process may do to
	// its server. Defaults to false: all processes together.
	PerProcess bool
}

// maxPer is the longest period of a rate limiter.
const maxPer = 366 * 24 * time.Hour

func (o *LimiterOptions) check() error {
	if o.Per == 0 {
		o.Per = time.Second
	}
	if o.Burst == 0 {
		o.Burst = 1
	}
	if o.MaxWait == 0 {
		o.MaxWait = maxWait
	}
	switch {
	case o.Rate < 1 || o.Rate > 1_000_000_000:
		return errs.InvalidOption("Rate", o.Rate, "between 1 and 1000000000")
	case o.Per < time.Microsecond || o.Per > maxPer || o.Per%time.Microsecond != 0:
		return errs.InvalidOption("Per", o.Per, fmt.Sprintf("whole microseconds between 1µs and %v, or 0 for a second", maxPer))
	case o.MaxWait < time.Millisecond || o.MaxWait > maxWait:
		return errs.InvalidOption("MaxWait", o.MaxWait, fmt.Sprintf("between 1ms and %v, or 0 for that", maxWait))
	case o.Burst < 1:
		return errs.InvalidOption("Burst", o.Burst, "at least 1, or 0 for 1")
	}
	if high, low := bits.Mul64(uint64(o.Burst), uint64(o.Per.Microseconds())); high > 0 || low > 1<<52 {
		return errs.InvalidOption("Burst", o.Burst, fmt.Sprintf("at most %d with Per %v", int64(1<<52)/o.Per.Microseconds(), o.Per))
	}
	return nil
}

// Limiter lets units pass at a rate, such as the requests in front of a sale. Every key (a user, an address; "" for all
// together) has a limit of its own. A Limiter is an immutable description, safe for concurrent use.
//
// In any interval of length T at most Burst + T * Rate / Per units pass, from all processes together, measured by the server's
// clock. The algorithm is the generic cell rate algorithm in whole numbers, so nothing drifts. A request whose reply is
// lost is sent again and may count its units twice: too few units pass then, never too many. A limiter admits; it does not
// allocate: for what must not be given out twice, use a Stock.
//
// A key costs the server about 150 bytes while its units still count, and nothing afterwards. If a key is lost (evicted,
// deleted, a failover), its limit starts again as if no unit had passed: up to Burst units too many pass. If the server's clock
// is set forward, as many units pass as the step is worth, at most Burst. If it is set back, the limiter stands still until the
// next call, no longer.
//
// The layout is not that of Redisson's RRateLimiter.
type Limiter struct {
	c       *Client
	name    string
	refused error // what is wrong with name or options

	o     LimiterOptions
	args  []string // rate, per, burst
	local *localLimits
}

// Limiter describes the rate limiter called name. It sends nothing. If the name or the options cannot be used,
// every verb of the result fails with ErrInvalidName or ErrInvalidOption. With PerProcess, the results of two calls share
// nothing.
func (c *Client) Limiter(name string, o LimiterOptions) *Limiter {
	l := &Limiter{c: c, name: name}
	_, refused := keyname.Braced(c.calls.KeyPrefix, name, "a rate limiter")
	if refused == nil {
		refused = o.check()
	}
	edge(&refused)
	l.refused = refused
	l.o = o
	l.args = []string{strconv.FormatInt(o.Rate, 10), strconv.FormatInt(o.Per.Microseconds(), 10), strconv.FormatInt(o.Burst, 10)}
	if o.PerProcess {
		l.local = &localLimits{base: time.Now(), keys: map[string]localLevel{}}
	}
	return l
}

// Admission is the answer of Allow and Wait.
type Admission struct {
	// Allowed reports whether the units may pass, and then they have been taken.
	Allowed bool
	// RetryAfter is how long until as many units could pass, if not Allowed and nobody else comes. An HTTP handler sends it as
	// Retry-After, with status 429.
	RetryAfter time.Duration
	// Remaining is how many more units could pass at once.
	Remaining int64
	// ResetAfter is how long until the whole burst could pass again.
	ResetAfter time.Duration
}

// Allow takes n units from key's limit if they may pass now. If not, it takes none and says how long to wait. n is 0 to Burst;
// with 0 it only looks. One round trip, repeated until answered; none with PerProcess.
//
// Errors: ErrInvalidName for the key, ErrInvalidOption for n, ErrWrongType, ErrDenied, ErrUnavailable, and ErrUnknownOutcome,
// after which the units may have been taken.
func (l *Limiter) Allow(ctx context.Context, key string, n int64) (_ Admission, err error) {
	defer edge(&err)
	if err := l.check(key, n, 0); err != nil {
		return Admission{}, err
	}
	r, err := l.take(ctx, session.CallID(), key, n, 0)
	if err != nil {
		return Admission{}, err
	}
	return r.admission(), nil
}

// Wait takes n units, 1 to Burst, from key's limit and returns when they may pass. It takes them at once, in the
// order in which the server runs the calls, and sleeps until they may pass; it does not ask
// again. The Admission is the server's, of before the sleep. One round trip; none with PerProcess.
//
// If the units could only pass after ctx's deadline, or after LimiterOptions.MaxWait, Wait takes nothing and returns ErrLimited at once,
// with an Admission that says how long. If ctx ends while Wait sleeps, it returns ctx's error at once. The units are
// then given back in the background, if no other call has come since, because later calls were told their times already,
// and if the server answers within a call timeout. The same is tried if ctx ends before the reply comes: ErrUnknownOutcome.
//
// The other errors are those of Allow.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) (_ Admission, err error) {
	defer edge(&err)
	if err := l.check(key, n, 1); err != nil {
		return Admission{}, err
	}
	most := l.o.MaxWait
	if d, ok := ctx.Deadline(); ok {
		most = max(0, min(most, time.Until(d)))
	}
	id := session.CallID()
	r, err := l.take(ctx, id, key, n, most)
	switch {
	case errors.Is(err, ErrUnknownOutcome): // the units may have been taken for a caller that no longer waits
		l.giveBack(ctx, id, key, n)
		return Admission{}, err
	case err != nil:
		return Admission{}, err
	case !r.passed && r.wait > l.o.MaxWait:
		return r.admission(), fmt.Errorf("%w: %q of %q, for another %v, longer than MaxWait, %v", ErrLimited, key, l.name, r.wait, l.o.MaxWait)
	case !r.passed:
		return r.admission(), fmt.Errorf("%w: %q of %q, for another %v", ErrLimited, key, l.name, r.wait)
	case r.wait == 0:
		return r.admission(), nil
	}
	// From here on it is counted from the reply: the units pass no earlier than the server said.
	if script.Pause(ctx, r.wait) {
		return r.admission(), nil
	}
	l.giveBack(ctx, id, key, n)
	return Admission{}, errs.Ended(ctx)
}

// giveBack undoes what take did under id, if no other call has come since. It runs in the background, because ctx has ended, for
// a call timeout at most. If it fails, too few units pass.
func (l *Limiter) giveBack(ctx context.Context, id, key string, n int64) {
	undo := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.c.calls.CallTimeout)
		defer cancel()
		if _, err := l.take(ctx, id, key, -n, 0); err != nil {
			l.c.failed(ctx, l.name, err)
		}
	}
	if l.local != nil {
		undo()
		return
	}
	l.c.calls.Finish(undo)
}

func (l *Limiter) check(key string, n, least int64) error {
	if err := l.c.calls.Usable(l.refused, keyname.Text("key", key)); err != nil {
		return err
	}
	if n < least || n > l.o.Burst {
		return errs.InvalidOption("n", n, fmt.Sprintf("between %d and Burst, which is %d", least, l.o.Burst))
	}
	return nil
}

// key is the Redis key of a limit. The hash tag is the name and the key, so that the keys of one limiter are spread
// over a Cluster; the length of the name says where it ends, so that "a", "b:c" and "a:b", "c" are two.
func (l *Limiter) key(key string) string {
	full := l.c.calls.KeyPrefix + l.name
	suffix := ":q" + strconv.Itoa(len(full))
	if key == "" {
		return keyname.Prefix("rc", full) + suffix
	}
	return "rc:{" + full + ":" + key + "}" + suffix
}

type rateReply struct {
	passed      bool
	wait, empty time.Duration
	free        int64
}

// admission is what the caller is told.
func (r rateReply) admission() Admission {
	a := Admission{Allowed: r.passed, Remaining: r.free, ResetAfter: r.empty}
	if !r.passed {
		a.RetryAfter = r.wait
	}
	return a
}

var rateScript = script.Load("take", files, "take")

// take runs take.lua, or does the same in this process.
func (l *Limiter) take(ctx context.Context, id, key string, n int64, most time.Duration) (rateReply, error) {
	if l.local != nil {
		if ctx.Err() != nil {
			return rateReply{}, fmt.Errorf("%w: rate limit of %q: %w", ErrUnavailable, l.key(key), errs.Ended(ctx))
		}
		return l.local.take(l.o, id, key, n, most), nil
	}
	k := l.key(key)
	m, err := l.c.calls.Do(ctx, script.Call{Script: rateScript, Keys: []string{k}, Args: append([]string{id}, append(l.args[:3:3],
		strconv.FormatInt(n, 10), strconv.FormatInt(most.Microseconds(), 10))...)})
	if err != nil {
		return rateReply{}, err
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 4 {
		return rateReply{}, fmt.Errorf("unexpected reply to take on %q", k)
	}
	return rateReply{passed: v[0] == 1, wait: script.Micros(v[1]), free: v[2], empty: script.Micros(v[3])}, nil
}
