package rights_test

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rlock"
)

// together uses several locks as one, in one slot and in several.
func together(ctx context.Context, locks *rlock.Client, must func(what string, e error)) {
	for _, names := range [][2]string{{"v{2}", "w{2}"}, {"v", "w"}} {
		both, e := rlock.Multi(locks.Reentrant(names[0]), locks.Reentrant(names[1]))
		must("multi", e)
		if e != nil {
			return
		}
		hold, e := both.Lock(ctx)
		must("multi: lock", e)
		if e != nil {
			return
		}
		waited := make(chan error, 1)
		go func() {
			h, e := both.TryLock(ctx, 5*time.Second, 5*time.Second)
			if e == nil {
				e = h.Unlock(ctx)
			}
			waited <- e
		}()
		time.Sleep(50 * time.Millisecond)
		must("multi: unlock", hold.Unlock(ctx))
		must("multi: waiter", <-waited)
	}
}

// kinds uses every kind of lock, waited for and not.
func kinds(ctx context.Context, locks *rlock.Client, must func(what string, e error)) {
	together(ctx, locks, must)
	for _, name := range []string{"k", "m{1}"} {
		rw := locks.ReadWrite(name + ":rw")
		for kind, l := range map[string]*rlock.Lock{
			"non-reentrant": locks.NonReentrant(name + ":n"), "fenced": locks.Fenced(name + ":f"),
			"spin": locks.Spin(name+":s", 0, 0),
			"fair": locks.Fair(name + ":q"), "plain": locks.Plain(name + ":p"), "read": rw.Read(), "write": rw.Write(),
		} {
			hold, e := l.Lock(ctx)
			must(kind, e)
			if e != nil {
				continue
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
				if _, e = l.TryLock(ctx, 20*time.Millisecond, 0); !errors.Is(e, errs.ErrNotAcquired) {
					must(kind+": giving up", e)
				}
			}
			must(kind+": extend", hold.Extend(ctx, time.Second))
			_, e = l.IsLocked(ctx)
			must(kind+": query", e)
			_, e = locks.Reentrant(l.Name()).Inspect(ctx)
			must(kind+": inspect", e)
			time.Sleep(80 * time.Millisecond) // a renewal; the waiters' second try
			must(kind+": unlock", hold.Unlock(ctx))
			must(kind+": waiter", <-waited)
			must(kind+": waiter", <-waited)
			hold, e = l.Lock(ctx)
			must(kind, e)
			if e == nil {
				_, e = l.ForceUnlock(ctx)
				must(kind+": force unlock", e)
				hold.Unlock(ctx)
			}
		}
	}
}
