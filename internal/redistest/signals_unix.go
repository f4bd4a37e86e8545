//go:build unix

package redistest

import "syscall"

// SigStop makes a process stand still, and SigCont lets it go on.
const (
	SigStop = syscall.SIGSTOP
	SigCont = syscall.SIGCONT
)
