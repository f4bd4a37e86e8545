// Package locker provides a [sync.Locker] on a lock of package rlock, for code that wants one and cannot be changed.
//
// A sync.Locker cannot say what matters about a lock on a network: that it could not be had, and that it was lost. So
// this adapter panics for the first and calls a function for the second. Use rlock itself wherever you can: its Lock
// returns an error and its Hold has a context that ends with it.
package locker
