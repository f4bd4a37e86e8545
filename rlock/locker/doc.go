// Package locker provides a [sync.Locker] on a lock of package rlock, for code that needs this interface and cannot be
// changed.
//
//	var mu sync.Locker = locker.New(ctx, locks.Reentrant("legacy"), func(err error) { log.Fatal(err) })
//	mu.Lock()
//	defer mu.Unlock()
//
// A sync.Locker has no way to report that a network lock could not be acquired, or that it was lost. So this adapter
// panics in the first case and calls a function in the second. Prefer package rlock itself where you can: its Lock
// returns an error, and its Hold has a context that ends with it. [New] has the rules.
package locker
