package contract_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rlock"
)

// onceRun is the right to run the function of a Once, as a grant: the function runs until the grant is released, and
// then fails, so that nothing is kept and the next caller has the right.
type onceRun struct {
	ctx   context.Context // of the function
	token int64
	leash *leash
	give  chan struct{} // closed by the first release
	done  chan struct{} // closed when Do has returned err
	err   error
	first sync.Once
}

// errGiven is the error of a function that ends because its run is released.
var errGiven = errors.New("released")

// beginRun returns when the function of a Once runs, or Do has returned.
func beginRun(ctx context.Context, once *rlock.Once, key string) (grant, error) {
	r := &onceRun{leash: &leash{ended: make(chan struct{})}, give: make(chan struct{}), done: make(chan struct{})}
	r.leash.follow(ctx)
	began := make(chan struct{})
	go func() {
		defer close(r.done)
		_, _, r.err = once.Do(r.leash, key, "", func(fnCtx context.Context, token int64) ([]byte, error) {
			r.ctx, r.token = fnCtx, token
			r.leash.follow(context.WithoutCancel(ctx)) // ctx bounds the wait, and not the function
			close(began)
			<-r.give
			return nil, errGiven
		})
	}()
	select {
	case <-began:
		return r, nil
	case <-r.done:
		return nil, r.err
	}
}

// end is a release that ctx bounds. A later one waits for the result of the first.
func (r *onceRun) end(ctx context.Context) error {
	over := ctx.Done()
	r.first.Do(func() {
		if ctx.Value(runKey{}) == r { // it ends now
			ctx = context.WithoutCancel(ctx)
		}
		r.leash.follow(ctx)
		close(r.give)
		over = nil
	})
	select {
	case <-r.done:
		return without(r.err, errGiven)
	case <-over:
		return errs.ErrUnknownOutcome
	}
}

// without returns err without one of the errors that it joins.
func without(err, one error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var rest []error
	for _, e := range joined.Unwrap() {
		if e != one { //nolint:errorlint // this one
			rest = append(rest, e)
		}
	}
	if len(rest) == 1 {
		return rest[0]
	}
	return errors.Join(rest...)
}

func (r *onceRun) Done() <-chan struct{} { return r.ctx.Done() }
func (r *onceRun) Err() error {
	if r.ctx.Err() == nil {
		return nil
	}
	return context.Cause(r.ctx)
}

// Until is not known to a function: it may work until its ctx ends.
func (r *onceRun) Until() time.Time {
	if r.ctx.Err() != nil {
		return time.Now()
	}
	return time.Now().Add(time.Millisecond)
}

func (r *onceRun) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(carrying{context.WithValue(parent, runKey{}, r), r.ctx})
	if r.Err() != nil {
		cancel(r.Err())
	}
	context.AfterFunc(r.ctx, func() { cancel(r.Err()) })
	return ctx
}

// carrying is a context that carries the holds of another context, too.
type carrying struct {
	context.Context
	holds context.Context
}

func (c carrying) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.holds.Value(key)
}

// runKey is the key by which a context of a run has that run.
type runKey struct{}

// leash is a context that follows one context after the other, and ends with one of them.
type leash struct {
	follows atomic.Pointer[context.Context]
	mu      sync.Mutex
	stop    func() bool
	ended   chan struct{}
}

func (l *leash) follow(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil && !l.stop() {
		return // it has ended
	}
	l.follows.Store(&ctx)
	l.stop = context.AfterFunc(ctx, func() { close(l.ended) })
}

func (l *leash) now() context.Context              { return *l.follows.Load() }
func (l *leash) Deadline() (at time.Time, ok bool) { return l.now().Deadline() }
func (l *leash) Done() <-chan struct{}             { return l.ended }
func (l *leash) Err() error                        { return l.now().Err() }
func (l *leash) Value(key any) any                 { return l.now().Value(key) }

// ran is the adapter of a Once.
func ran() primitive {
	of := func(p *process) *rlock.Once { return p.red[0].Locks().Once("once", rlock.OnceOptions{}) }
	const noTerms, noEnd = "A run has no lease and no label of its own.", "A run lasts until its function returns."
	differs := map[string]string{
		"a lease of its own ends it, and the next process has it":        noTerms,
		"Extend makes it last for longer, and never for less":            noTerms,
		"a grant that is slower than its lease is none":                  noTerms,
		"a lost reply to its extension is an extension":                  noTerms,
		"its release is tried for as long as its longest lease":          noTerms,
		"Inspect shows it while it lasts":                                noTerms,
		"a handle that is forgotten is renewed no more, and logged once": noEnd,
	}
	return primitive{
		name: "once", servers: 1, differs: differs,
		acquire: func(ctx context.Context, p *process, object string, _ terms) (grant, error) {
			return p.keep(beginRun(ctx, of(p), object))
		},
		try: func(ctx context.Context, p *process, object string, wait time.Duration, _ terms) (grant, error) {
			return p.keep(beginRun(ctx, of(p).WithWait(wait), object))
		},
		do: func(ctx context.Context, p *process, object string, fn func(context.Context) error) error {
			_, _, err := of(p).Do(ctx, object, "", func(ctx context.Context, _ int64) ([]byte, error) {
				return nil, cmp.Or(fn(ctx), errGiven)
			})
			if err == errGiven { //nolint:errorlint // as it is
				return nil
			}
			return without(err, errGiven)
		},
		release: func(ctx context.Context, g grant) error { return g.(*onceRun).end(ctx) },
		token:   func(g grant) int64 { return g.(*onceRun).token },
		inspect: func(ctx context.Context, p *process, object string) (all []holder, _ error) {
			state, err := of(p).Inspect(ctx, object)
			for _, h := range state.Run.Holders {
				all = append(all, holder{h.Process, h.Label, h.Lease})
			}
			return all, err
		},
	}
}
