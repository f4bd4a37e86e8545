package rlock

import (
	"context"
	"errors"
)

// Do acquires the lock as Lock does, runs fn under the hold's context, and unlocks.
//
// fn's ctx ends if the hold is lost; fn should then return. The error is Lock's if the lock was not acquired (fn did
// not run), otherwise fn's joined with Unlock's: ErrLost among them says that the lock was not held until fn returned.
// A panic in fn unlocks and goes on.
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
