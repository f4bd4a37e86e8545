package errs

import (
	"net"
	"sync/atomic"
)

// Dials counts the connections that a client makes, and keeps the last failure. The zero value is ready. All methods
// are safe for concurrent use.
type Dials struct {
	begun  atomic.Int64
	failed atomic.Pointer[error]
}

// Dial makes one connection by calling dial.
func (d *Dials) Dial(dial func() (net.Conn, error)) (net.Conn, error) {
	d.begun.Add(1)
	conn, err := dial()
	if err != nil {
		d.failed.Store(&err)
	} else {
		d.failed.Store(nil)
	}
	return conn, err
}

// Begun returns how many connections the client has begun to make.
func (d *Dials) Begun() int64 { return d.begun.Load() }

// Failure returns why the last connection could not be made; nil if the connection was made.
func (d *Dials) Failure() error {
	if err := d.failed.Load(); err != nil {
		return *err
	}
	return nil
}
