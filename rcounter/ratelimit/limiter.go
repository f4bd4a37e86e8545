package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// maxWait is the default and the bound of LimiterOptions.MaxWait.
const maxWait = 24 * time.Hour

// LimiterOptions describe a Limiter. Without Stored they are not on the server: all users of a name must
// pass the same ones. If they change, the units that passed before still count. A limit of another Algorithm or Unit
// starts anew. While two versions of a program use different ones side by side, each call is judged by its own, and
// more may pass than either version allows.
type LimiterOptions struct {
	// Rate is how many units pass in every Per, or in every Unit, 1 to 1,000,000,000. Required.
	Rate int64
	// Per is the period, whole microseconds up to 366 days. Defaults to a second. Not with FixedWindow.
	Per time.Duration
	// Burst is how many units may pass at once after a pause, at least 1; Burst times Per in microseconds is at most
	// 2^52. With 1 units pass evenly spaced, Per / Rate apart. Only with GCRA. Defaults to Rate.
	Burst int64
	// Algorithm is how units are counted. Defaults to GCRA.
	Algorithm Algorithm
	// Unit is the unit of the calendar with which a FixedWindow ends: Minute, Hour, Day, Week, Month or Year. Required
	// there, and only there.
	Unit Unit
	// Zone is the time zone of that calendar. Where clocks are put forward a day has 23 hours, and where they are put back
	// it has 25; an hour that comes twice is one. Servers know no zones: the offset comes from the process's table, for
	// the server's time. Only with FixedWindow. Defaults to UTC.
	Zone *time.Location
	// MaxWait is the longest time for which Wait waits, and until the turn of a Reservation, 1 ms to 24 hours. Defaults to
	// 24 hours.
	MaxWait time.Duration
	// Stored has the server's limit count, if one was Set under this name; until one is, and while it is not known, Rate,
	// Per, Burst, Algorithm, Unit and Zone do. See Limiter.Set. Defaults to false: those of the program, always.
	Stored bool
	// Shadow has the limit judge and count, and refuse nothing: Admission.WouldRefuse is its verdict. Units beyond the
	// limit pass and are not counted, so the verdicts are those of a limit that refuses. To try a limit on real requests,
	// set Shadow first. Not with Wait and Reserve. Defaults to false.
	Shadow bool
	// WhenDown is what Allow, AllowAtMost, AllowAll, Charge and ChargeAll answer while the server does not: see Policy.
	// Defaults to Fail, and with Shadow to Open, which is the only one there.
	WhenDown Policy
	// Share is the part of the rate that this process lets pass by itself under Local, above 0 and up to 1: with ten
	// processes .1 is as much as the server would let pass. At least a unit passes at once. Required with Local, and only
	// there.
	Share float64
}

// check fills in the defaults, and makes the terms.
func (o *LimiterOptions) check() (*terms, error) {
	if o.Shadow {
		o.WhenDown = cmp.Or(o.WhenDown, Open)
	}
	o.WhenDown = cmp.Or(o.WhenDown, Fail)
	switch {
	case o.Shadow && o.WhenDown != Open:
		return nil, errs.InvalidWord("WhenDown", o.WhenDown, "Open with Shadow, which refuses nothing")
	case !slices.Contains([]Policy{Fail, Closed, Open, Local}, o.WhenDown):
		return nil, errs.InvalidWord("WhenDown", o.WhenDown, "Fail, Closed, Open or Local")
	case o.WhenDown == Local && !(o.Share > 0 && o.Share <= 1):
		return nil, errs.InvalidOption("Share", o.Share, "above 0 and at most 1 with Local")
	case o.WhenDown != Local && o.Share != 0:
		return nil, errs.InvalidOption("Share", o.Share, fmt.Sprintf("0 with %v", o.WhenDown))
	}
	if err := session.Check(session.Duration{Name: "MaxWait", Value: &o.MaxWait, Least: time.Millisecond, Most: maxWait,
		Default: maxWait}); err != nil {
		return nil, err
	}
	return newTerms(o)
}

// Limiter lets units pass at a rate, such as the requests in front of a sale. Every key (a user, an address; "" for all
// together) has a limit of its own. A Limiter is an immutable description, safe for concurrent use, and costs nothing
// until used: make one for each request, or one for all.
//
// In any interval of length T at most Burst + T * Rate / Per units pass, from all processes together, measured by the
// server's clock. The algorithm is the generic cell rate algorithm in whole numbers, so nothing drifts; others are
// SlidingWindow, at most Rate in any Per, and FixedWindow, at most Rate in each unit of the calendar. A request whose
// reply is lost is sent again and may count its units twice: too few units pass then, never too many. A limiter admits;
// it does not allocate: for what must not be given out twice, use a Stock.
//
// A key costs the server about 200 bytes while its units still count, and nothing afterwards. If a key is lost
// (evicted, deleted, a failover), its limit starts again as if no unit had passed: up to Burst units too many pass. If
// the server's clock is set forward, as many units pass as the step is worth, at most Burst. If it is set back, the
// limiter stands still until the next call, no longer; a FixedWindow stays until its end.
//
// The layout is not that of Redisson's RRateLimiter.
type Limiter struct {
	c       *Client
	name    string
	refused error // what is wrong with name or options
	o       LimiterOptions
	terms   *terms
}

// Limiter describes the rate limiter called name. It sends nothing. If the name or the options cannot be used,
// every verb of the result fails with ErrInvalidName or ErrInvalidOption.
func (c *Client) Limiter(name string, o LimiterOptions) *Limiter {
	l := &Limiter{c: c, name: name}
	_, refused := keyname.Braced(c.calls.KeyPrefix, name, "a rate limiter")
	if refused == nil {
		l.terms, refused = o.check()
	}
	edge(&refused)
	l.refused, l.o = refused, o
	return l
}

// Admission is the answer of a Limiter.
type Admission struct {
	// Allowed reports whether the units may pass, and then they have been taken. A Shadow limit always says so.
	Allowed bool
	// WouldRefuse reports whether a limit with LimiterOptions.Shadow would have refused if it were none: then it has taken
	// no units, or by AllowAtMost fewer than N.
	WouldRefuse bool
	// N is how many units were taken: those asked for, or fewer by AllowAtMost, or none. Of a Shadow limit it is how many
	// may pass: those asked for.
	N int64
	// RetryAfter is how long until as many units could pass, if not Allowed or WouldRefuse, and no other request comes; of
	// AllowAtMost until one could. An HTTP handler sends it as Retry-After, with status 429.
	RetryAfter time.Duration
	// Remaining is how many more units could pass at once.
	Remaining int64
	// ResetAfter is how long until the whole burst could pass again.
	ResetAfter time.Duration
	// Down is why the server did not answer, where LimiterOptions.WhenDown did in its place; else nil.
	Down error
}

// Allow takes n units from key's limit if they may pass now. If not, it takes none and says how long to wait. n is 1 to
// Burst; if it is more than a limit that was Set lets pass, it is refused. It is answered within Options.AllowTimeout.
// One round trip, which calls in a crowd share; none where the server has just refused as many (Options.RefusalTrust).
//
// Errors: ErrInvalidName for the key, ErrInvalidOption for n, ErrWrongType, ErrDenied; and under the policy Fail
// ErrUnavailable, and ErrUnknownOutcome, after which the units may have been taken.
func (l *Limiter) Allow(ctx context.Context, key string, n int64) (admission Admission, err error) {
	defer edge(&err)
	return l.allow(ctx, Take{l, key, n}, &request{})
}

// AllowAtMost takes n units from key's limit, or as many as may pass now: Admission.N. Allowed reports whether there
// was one. Otherwise it is as Allow.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int64) (admission Admission, err error) {
	defer edge(&err)
	return l.allow(ctx, Take{l, key, n}, &request{upTo: true})
}

func (l *Limiter) allow(ctx context.Context, take Take, r *request) (Admission, error) {
	if err := r.add(ctx, take, 1); err != nil {
		return Admission{}, err
	}
	d, err := l.c.decide(ctx, r)
	if err != nil {
		return Admission{}, err
	}
	return d.Each[0], nil
}

// Peek says where key's limit stands, and takes nothing: Allowed reports whether a unit could pass.
// LimiterOptions.WhenDown does not apply: a server that does not answer is ErrUnavailable. Otherwise it is as Allow,
// with a round trip of its own.
func (l *Limiter) Peek(ctx context.Context, key string) (answer Admission, err error) {
	defer edge(&err)
	var r request
	if err := r.add(ctx, Take{l, key, 0}, 0); err != nil {
		return Admission{}, err
	}
	if r.silent != nil {
		return Admission{}, r.silent
	}
	replies, err := l.c.ask(ctx, &r)
	if err != nil {
		return Admission{}, err
	}
	a := replies[0].admission(false)
	a.Allowed = a.Remaining > 0
	if l.o.Shadow {
		a.Allowed, a.WouldRefuse = true, !a.Allowed
	}
	return a, nil
}

// Name is the name of the limiter.
func (l *Limiter) Name() string { return l.name }

// Quota is what the limiter lets pass, for headers and pages: n units in a window. With GCRA that is the burst and the
// time in which it is there again after it was used up; with FixedWindow the window is the nominal length of the unit.
// With LimiterOptions.Stored it is what this process last knew. It sends nothing. If the options cannot be used, it is
// 0.
func (l *Limiter) Quota() (n int64, window time.Duration) {
	t := l.terms
	if t == nil {
		return 0, 0
	}
	if known, ok := l.c.known.Load(l.storedKey()); ok && l.o.Stored {
		if s := known.(*storedLimit).terms.Load(); s != nil {
			t = s
		}
	}
	return t.burst, t.window()
}

// Reset lets key's limit start again, as if no unit had passed. Reservations keep their turns, and open charges are
// settled. One round trip, repeated until answered.
func (l *Limiter) Reset(ctx context.Context, key string) (err error) {
	defer edge(&err)
	if err := l.usable(key); err != nil {
		return err
	}
	k := l.key(key)
	_, err = l.c.calls.Do(ctx, script.Call{Script: resetScript, Keys: []string{k, chargesKey(k)}})
	l.c.refusals.forget(k)
	return err
}

var resetScript = script.Plain("del")

func (l *Limiter) usable(key string) error {
	return l.c.calls.Usable(l.refused, keyname.Text("key", key))
}

// key is the Redis key of a limit. Its hash tag is the caller's key, or that key's own tag, so that the keys of one
// limiter are spread over a Cluster, and the limits of one key in several limiters are together. The length of the
// limiter's name says where it ends, so that "a", "b:c" and "a:b", "c" are two; and the letter before it, whether the
// braces are the key's own.
func (l *Limiter) key(key string) string {
	full := l.c.calls.KeyPrefix + l.name
	size := strconv.Itoa(len(full))
	if key == "" {
		return keyname.Prefix("rc", full) + ":q" + size
	}
	if open := strings.IndexByte(key, '{'); open >= 0 && strings.IndexByte(key[open:], '}') > 1 {
		return "rc:" + full + ":" + key + ":t" + size
	}
	return "rc:" + full + ":{" + key + "}:k" + size
}

// callID names a call: see session.CallID.
func callID() string { return session.CallID() }
