//go:build !linux

package redistest

import (
	"syscall"
	"time"
)

func ownGroup() *syscall.SysProcAttr { return nil }

func stopped(int) bool {
	time.Sleep(100 * time.Millisecond)
	return true
}
