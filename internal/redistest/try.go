package redistest

import (
	"context"
	"testing"
)

// Ended is a context that has ended.
func Ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// thrown is the panic value of Must.
type thrown struct{ error }

// Try calls f, and returns the error with which Must ended it.
func Try(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case thrown:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// Must ends the Try in whose goroutine it is called, with err. It does nothing if err is nil.
func Must(err error) {
	if err != nil {
		panic(thrown{err})
	}
}

// Got returns the value of a call, or ends the Try with the error of the call.
func Got[T any](v T, err error) T {
	Must(err)
	return v
}

// NoError returns the value of a call that must not fail in a test: NoError(call())(t).
func NoError[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal("unexpected error: ", err)
		}
		return value
	}
}
