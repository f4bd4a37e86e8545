//go:build unix

package redistest

import "syscall"

// SigStop stops a process, and SigCont continues it.
const (
	SigStop = syscall.SIGSTOP
	SigCont = syscall.SIGCONT
)
