package redlatchhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Limit is one limit of a request.
type Limit struct {
	// Limiter has the limit. Required.
	Limiter *ratelimit.Limiter
	// Key is whose limit it is: see ByIP and ByHeader. Defaults to nil: one limit for all requests.
	Key func(r *http.Request) string
	// Cost is how many units a request takes, 1 to the limiter's burst; 0: none. Defaults to nil: one.
	Cost func(r *http.Request) int64
	// Name is that of the policy in the header fields: printable ASCII without quotes and backslashes. Defaults to the
	// limiter's.
	Name string
}

// Options of New.
type Options struct {
	// Limits are all taken from in one step, 1 to 16. In a Cluster their keys must be in one slot: see
	// ratelimit.Client.AllowAll.
	Limits []Limit
	// Permits, if set, has a permit for each request that is under way.
	Permits *rsemaphore.Semaphore
	// PermitWait is how long a request waits for one. Defaults to 0: not at all.
	PermitWait time.Duration
	// Refused answers a request that was refused; the header fields are set. Defaults to a text, with status 429.
	Refused http.Handler
	// Unavailable answers a request that could not be judged, or found no permit; Retry-After is set. Defaults to a text,
	// with status 503.
	Unavailable http.Handler
	// Failed is called with the reason why a request could not be judged, unless its client has left. nil, the default: it
	// is not reported.
	Failed func(r *http.Request, err error)
	// NoHeaders leaves RateLimit and RateLimit-Policy out.
	NoHeaders bool
}

// New returns middleware that limits the requests of a handler. The error is redlatch.ErrInvalidOption. It sends
// nothing.
func New(c *ratelimit.Client, o Options) (func(http.Handler) http.Handler, error) {
	if c == nil {
		return nil, invalid("client", nil, "not nil")
	}
	if len(o.Limits) == 0 && o.Permits == nil || len(o.Limits) > 16 {
		return nil, invalid("Limits", len(o.Limits), "1 to 16, or none with Permits")
	}
	if o.PermitWait < 0 {
		return nil, invalid("PermitWait", o.PermitWait, "not negative")
	}
	limits := make([]Limit, len(o.Limits))
	for i, l := range o.Limits {
		if l.Limiter == nil {
			return nil, invalid(fmt.Sprintf("Limits[%d].Limiter", i), nil, "not nil")
		}
		l.Name = cmp.Or(l.Name, l.Limiter.Name())
		if l.Name == "" || strings.ContainsFunc(l.Name, func(r rune) bool {
			return r < ' ' || r > '~' || r == '"' || r == '\\'
		}) {
			return nil, invalid(fmt.Sprintf("Limits[%d].Name", i), fmt.Sprintf("%.64q", l.Name),
				"printable ASCII without quotes and backslashes")
		}
		limits[i] = l
	}
	o.Limits = limits
	if o.Refused == nil {
		o.Refused = text(http.StatusTooManyRequests, "too many requests")
	}
	if o.Unavailable == nil {
		o.Unavailable = text(http.StatusServiceUnavailable, "try again later")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.serve(c, next, w, r) })
	}, nil
}

func invalid(field string, value any, must string) error {
	return fmt.Errorf("redlatchhttp: %w: %s is %v, must be %s", redlatch.ErrInvalidOption, field, value, must)
}

func text(status int, what string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, what, status) })
}

func (o *Options) serve(c *ratelimit.Client, next http.Handler, w http.ResponseWriter, r *http.Request) {
	if len(o.Limits) > 0 {
		d, err := o.ask(c, r)
		if err != nil {
			o.fail(w, r, err)
			return
		}
		if !o.NoHeaders {
			o.headers(w.Header(), d.Each)
		}
		if !d.Allowed {
			w.Header().Set("Retry-After", seconds(max(time.Second, d.RetryAfter)))
			o.Refused.ServeHTTP(w, r)
			return
		}
	}
	if o.Permits != nil {
		permit, err := o.Permits.TryAcquire(r.Context(), 1, o.PermitWait, 0)
		if err != nil {
			o.fail(w, r, err)
			return
		}
		defer func() { _ = permit.Release(context.WithoutCancel(r.Context())) }() // one that was lost is gone
	}
	next.ServeHTTP(w, r)
}

func (o *Options) fail(w http.ResponseWriter, r *http.Request, err error) {
	gone := errors.Is(r.Context().Err(), context.Canceled) // the client has left, which says nothing of Redis
	if o.Failed != nil && !gone && !errors.Is(err, redlatch.ErrNotAcquired) {
		o.Failed(r, err)
	}
	w.Header().Set("Retry-After", "1")
	o.Unavailable.ServeHTTP(w, r)
}

// ask takes what the request costs.
func (o *Options) ask(c *ratelimit.Client, r *http.Request) (ratelimit.Decision, error) {
	takes := make([]ratelimit.Take, len(o.Limits))
	for i, l := range o.Limits {
		takes[i] = ratelimit.Take{Limiter: l.Limiter, N: 1}
		if l.Key != nil {
			takes[i].Key = l.Key(r)
		}
		if l.Cost != nil {
			takes[i].N = l.Cost(r)
		}
	}
	return c.AllowAll(r.Context(), takes...)
}

// mostInteger is the largest integer of a structured field (RFC 9651).
const mostInteger = 999_999_999_999_999

// headers says what the limits are, and what is left of them.
func (o *Options) headers(h http.Header, each []ratelimit.Admission) {
	var policies, left []string
	for i, l := range o.Limits {
		if each[i].Down != nil {
			continue
		}
		quota, window := l.Limiter.Quota()
		policies = append(policies, fmt.Sprintf(`"%s";q=%d;w=%s`, l.Name, min(quota, mostInteger), seconds(window)))
		left = append(left,
			fmt.Sprintf(`"%s";r=%d;t=%s`, l.Name, min(each[i].Remaining, mostInteger), seconds(each[i].ResetAfter)))
	}
	if policies != nil {
		h.Set("RateLimit-Policy", strings.Join(policies, ", "))
		h.Set("RateLimit", strings.Join(left, ", "))
	}
}

// seconds is d in whole seconds, rounded up.
func seconds(d time.Duration) string { return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10) }
