package redistest

import "syscall"

// SigStop and SigCont have no effect here: Windows stops no process by a signal. The tests compile, and those of
// processes skip, because there is no redis-server.
const (
	SigStop = syscall.Signal(0x13)
	SigCont = syscall.Signal(0x12)
)
