package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// LimitState is what Inspect returns: the limit that applies now, and who set it.
type LimitState struct {
	// Stored reports whether a limit is kept on the server under the name. If not, the others are those of the program.
	Stored    bool
	Rate      int64
	Per       time.Duration // 0 with FixedWindow
	Burst     int64         // with GCRA
	Algorithm Algorithm
	Unit      Unit   // of FixedWindow
	Zone      string // of FixedWindow: its name
	// By is who has set it, and Age how long ago, by the server's clock.
	By  string
	Age time.Duration
}

// Set keeps l's Rate, Per, Burst, Algorithm, Unit and Zone on the server under its name, for all limiters of that name
// with LimiterOptions.Stored, in all processes: a limit is changed without a deploy. by is who does so, or why, up to
// 256 bytes; Inspect returns it. What was taken still counts, as if the options of a program had changed.
//
// Processes learn of it by client-side caching, within milliseconds as a rule and within about a second in any case.
// Until then they go by what they knew, so for that time some of the requests may be judged by one limit and some by
// the other. A process that has just started, and does not get an answer within Options.AllowTimeout, goes by its
// program's options until it does.
//
// A limit may be set below what some requests take. Allow and AllowAll refuse those then, with a RetryAfter of the time
// in which the whole burst passes; AllowAtMost takes what may pass, and Wait and Reserve return ErrLimited. Wait and
// Reserve need GCRA, so a limit of another Algorithm makes them fail.
//
// A time zone must have a name that all processes know. Set is sent once: after ErrUnknownOutcome look with Inspect.
func (l *Limiter) Set(ctx context.Context, by string) (err error) {
	defer edge(&err)
	if err := l.c.calls.Usable(l.refused, session.CheckLabel("by", by)); err != nil {
		return err
	}
	if _, err := loadZone(l.terms.zone.String()); err != nil { // nil is UTC
		return fmt.Errorf("%w: Zone is %q, which has no name for other processes: %w", errs.ErrInvalidOption, l.terms.zone,
			err)
	}
	return l.set(ctx, strings.Join(l.terms.words[:], ","), by)
}

// Unset removes the limit that is kept on the server: the programs' options count again. It is sent once.
func (l *Limiter) Unset(ctx context.Context) (err error) {
	defer edge(&err)
	if err := l.c.calls.Usable(l.refused); err != nil {
		return err
	}
	return l.set(ctx, "", "")
}

var (
	setScript     = script.Load("set", files, "set")
	inspectScript = script.Load("inspect", files, "inspect").Reads()
	storedScript  = script.Plain("get")
)

func (l *Limiter) set(ctx context.Context, terms, by string) error {
	_, err := l.c.calls.Do(ctx,
		script.Call{Script: setScript, Keys: []string{l.storedKey()}, Args: []string{terms, by}, Once: true})
	if s, ok := l.c.known.Load(l.storedKey()); ok {
		s.(*storedLimit).next.Store(0)
	}
	return err
}

// Inspect asks the server for the limit that is kept under the name. One round trip, repeated until answered.
func (l *Limiter) Inspect(ctx context.Context) (state LimitState, err error) {
	return session.Ask(ctx, l.c.calls, l.refused, func(ctx context.Context) (s LimitState, err error) {
		t := l.terms
		m, err := l.c.calls.Do(ctx, script.Call{Script: inspectScript, Keys: []string{l.storedKey()}})
		if err != nil {
			return s, err
		}
		v, err := m.AsStrSlice()
		if err != nil || len(v) != 2 {
			return s, fmt.Errorf("unexpected reply to inspect on %q", l.storedKey())
		}
		kept, err := readKept(v[0])
		now, err2 := strconv.ParseInt(v[1], 10, 64)
		if err != nil || err2 != nil {
			return s, l.unreadable(v[0])
		}
		if kept.terms != nil {
			t, s.Stored, s.By, s.Age = kept.terms, true, kept.by, script.Duration(max(0, now-kept.at))
		}
		s.Rate, s.Algorithm, s.Per = t.rate, t.algorithm, script.Micros(t.per)
		switch t.algorithm {
		case GCRA:
			s.Burst = t.burst
		case FixedWindow:
			s.Per, s.Unit, s.Zone = 0, t.unit, t.zone.String()
		}
		return s, nil
	})
}

func (l *Limiter) unreadable(text string) error {
	kind := errs.ErrWrongType
	if strings.HasPrefix(text, "v") {
		kind = errs.ErrNewer
	}
	return fmt.Errorf("%w: the limit at %q is %.64q", kind, l.storedKey(), text)
}

// storedKey is the key of the limit that is kept under the name.
func (l *Limiter) storedKey() string {
	full := l.c.calls.KeyPrefix + l.name
	return keyname.Prefix("rc", full) + ":l" + strconv.Itoa(len(full))
}

// keptLimit is what the server keeps: 'terms;at;by'.
type keptLimit struct {
	terms *terms
	at    int64 // ms
	by    string
}

// readKept reads it; of "" it has no terms: the program's count.
func readKept(text string) (k keptLimit, err error) {
	if text == "" {
		return k, nil
	}
	words, rest, _ := strings.Cut(text, ";")
	at, by, _ := strings.Cut(rest, ";")
	k.by = by
	if k.at, err = strconv.ParseInt(at, 10, 64); err == nil {
		k.terms, err = readTerms(words)
	}
	return k, err
}

const (
	// storedFor is for how long what is kept stays in the client-side cache if the server says nothing.
	storedFor = 10 * time.Minute
	// A process looks into that cache every storedLook. A server that answers each time has no such cache, or something
	// has changed: it is asked again after storedAsk.
	storedLook = 20 * time.Millisecond
	storedAsk  = time.Second
)

// storedLimit is what a process knows of a limit that is kept.
type storedLimit struct {
	read  rueidis.Cacheable
	next  atomic.Int64 // ns after the client's base: then it is looked at again
	terms atomic.Pointer[terms]

	text string // of the terms; of the look under way

	mu     sync.Mutex // not held while the server is asked
	under  *look      // way; nil: none
	looked bool       // at least once, in vain or not
}

// look is a read of the limit that the server keeps. It runs in the background, because its caller may leave before the
// read has ended, and the next caller uses the result.
type look struct {
	done chan struct{}
	err  error // the server did not answer; set before done is closed
}

// stored are the terms that count now: the server's if they are known, otherwise the program's. r.silent is set if the
// server did not answer a look for which the caller has waited as long as for a request.
func (l *Limiter) stored(ctx context.Context, r *request) *terms {
	key := l.storedKey()
	v, ok := l.c.known.Load(key)
	if !ok {
		read := l.c.calls.Hub.Client().B().Get().Key(key).Cache().ToStaticTTL().Pin()
		v, _ = l.c.known.LoadOrStore(key, &storedLimit{read: read})
	}
	s := v.(*storedLimit)
	if r.silent == nil && l.c.calls.Now() >= s.next.Load() {
		r.silent = s.refresh(ctx, l)
	}
	if t := s.terms.Load(); t != nil {
		return t
	}
	return l.terms
}

// refresh has a look made, and waits for it until ctx ends. The first requests of a process wait for the same look;
// later requests use the known terms while a look is under way. A first look that fails is not repeated for each of
// them: each request would wait for AllowTimeout, though the server is silent.
func (s *storedLimit) refresh(ctx context.Context, l *Limiter) error {
	s.mu.Lock()
	under := s.under
	if under == nil && l.c.calls.Now() >= s.next.Load() { // no other has looked meanwhile
		under = &look{done: make(chan struct{})}
		s.under = under
		l.c.calls.Finish(func() {
			under.err = s.look(context.WithoutCancel(ctx), l)
			s.mu.Lock()
			s.under, s.looked = nil, true
			s.mu.Unlock()
			close(under.done)
		})
	} else if s.looked {
		under = nil
	}
	s.mu.Unlock()
	if under == nil {
		return nil
	}
	select {
	case <-under.done: // after AllowTimeout at the latest
		return under.err
	case <-ctx.Done():
		return nil
	}
}

// look reads the limit that the server keeps. The error says that the server did not answer.
func (s *storedLimit) look(ctx context.Context, l *Limiter) error {
	m, err := l.c.allows.Attempt(ctx,
		script.Call{Script: storedScript, Keys: []string{l.storedKey()}, Cached: s.read, CachedFor: storedFor})
	now := l.c.calls.Now()
	text := ""
	if err == nil {
		text, err = m.ToString()
	}
	if err != nil && !errors.Is(err, rueidis.Nil) {
		s.next.Store(now + int64(l.c.allowTimeout))
		if script.NotAnswered(err) {
			return err
		}
		l.c.calls.Complain(notRead, l.name, err)
		return nil
	}
	s.next.Store(now + int64(storedAsk))
	if m.IsCacheHit() {
		s.next.Store(now + int64(storedLook))
	}
	if text == s.text {
		return nil
	}
	kept, err := readKept(text)
	if err != nil { // what is known goes on
		l.c.calls.Complain(notRead, l.name, l.unreadable(text))
		return nil
	}
	s.text = text
	s.terms.Store(kept.terms)
	return nil
}

const notRead = "the limit stored on the server cannot be read; the last known limit applies"
