package rights_test

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// together uses several locks as one, in one slot and in several.
func together(ctx context.Context, locks *rlock.Client) {
	for _, names := range [][2]string{{"v{2}", "w{2}"}, {"v", "w"}} {
		both := redistest.Got(rlock.Multi(locks.Reentrant(names[0]), locks.Reentrant(names[1])))
		hold := redistest.Got(both.Lock(ctx))
		waited := make(chan error, 1)
		go func() {
			h, e := both.TryLock(ctx, 5*time.Second, 5*time.Second)
			if e == nil {
				e = h.Unlock(ctx)
			}
			waited <- e
		}()
		time.Sleep(50 * time.Millisecond)
		redistest.Must(hold.Unlock(ctx))
		redistest.Must(<-waited)
	}
}

// kinds uses every kind of lock, waited for and not.
func kinds(ctx context.Context, locks *rlock.Client) {
	together(ctx, locks)
	for _, name := range []string{"k", "m{1}"} {
		rw := locks.ReadWrite(name + ":rw")
		for kind, l := range map[string]*rlock.Lock{
			"reentrant": locks.Reentrant(name + ":r"), "non-reentrant": locks.NonReentrant(name + ":n"),
			"fenced": locks.Fenced(name + ":f"), "spin": locks.Spin(name+":s", 0, 0),
			"fair": locks.Fair(name + ":q"), "plain": locks.Plain(name + ":p"), "read": rw.Read(), "write": rw.Write(),
		} {
			hold := redistest.Got(l.Lock(ctx))
			if kind == "reentrant" {
				inner := redistest.Got(l.Lock(hold.Context(ctx)))
				redistest.Must(inner.Unlock(ctx))
			}
			other := l
			if kind == "read" {
				other = rw.Write()
			}
			waited := make(chan error, 2)
			for range 2 {
				go func() {
					h, e := other.TryLock(ctx, 5*time.Second, 5*time.Second)
					if e == nil {
						e = h.Unlock(ctx)
					}
					waited <- e
				}()
			}
			if kind == "fair" { // one that gives up leaves the line
				if _, e := l.TryLock(ctx, 20*time.Millisecond, 0); !errors.Is(e, errs.ErrNotAcquired) {
					redistest.Must(e)
				}
			}
			redistest.Must(hold.Extend(ctx, time.Second))
			redistest.Got(l.IsLocked(ctx))
			redistest.Got(locks.Reentrant(l.Name()).Inspect(ctx))
			time.Sleep(80 * time.Millisecond) // a renewal; the waiters' second try
			redistest.Must(hold.Unlock(ctx))
			redistest.Must(<-waited)
			redistest.Must(<-waited)
			hold = redistest.Got(l.Lock(ctx))
			redistest.Got(l.ForceUnlock(ctx))
			hold.Unlock(ctx)
		}
		useOfOnce(ctx, locks.Once("o", rlock.OnceOptions{}), name)
	}
}

// useOfOnce has others wait for a run that fails, then for one that succeeds, and reads the answer in all ways.
func useOfOnce(ctx context.Context, once *rlock.Once, key string) {
	waited := make(chan error, 2)
	do := func(result error) error {
		_, _, e := once.Do(ctx, key, "f", func(context.Context, int64) ([]byte, error) {
			time.Sleep(80 * time.Millisecond)
			return []byte("answer"), result
		})
		return e
	}
	go func() { waited <- do(errs.ErrCorrupt) }()
	time.Sleep(10 * time.Millisecond)
	go func() { waited <- do(nil) }()
	redistest.Must(do(nil))
	for range 2 {
		if e := <-waited; !errors.Is(e, errs.ErrCorrupt) {
			redistest.Must(e)
		}
	}
	for range 3 {
		redistest.Must(do(nil))
	}
	redistest.Got(once.Inspect(ctx, key))
}
