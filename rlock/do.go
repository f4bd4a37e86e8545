package rlock

import (
	"context"
	"errors"
)

// Do acquires the lock as Lock does, runs fn under the hold's context, and unlocks.
//
// The ctx of fn ends if the hold is lost; fn should return then. If the lock was not acquired, fn does not run, and the
// error is Lock's. Otherwise it is fn's error joined with Unlock's: if ErrLost is among them, the lock was not held until fn
// returned. If fn panics, Do unlocks and the panic goes on.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if e := hold.Unlock(ctx); e != nil {
			err = errors.Join(err, e)
		}
	}()
	return fn(hold.Context(ctx))
}
