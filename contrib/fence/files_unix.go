//go:build unix && !solaris && !aix

package redlatchfence

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file, unless another open file of it is locked.
func tryLock(f *os.File) (locked bool, err error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}
