package redistest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ownGroup keeps a terminal's Ctrl-C from reaching the server and takes the server down with the test process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// stopped reports whether every thread of a process stands still. SIGSTOP is delivered to one of them, and on a busy
// machine the others go on until that one has its turn.
func stopped(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		after := stat[bytes.LastIndexByte(stat, ')')+1:] // the name may hold anything
		if state := bytes.TrimSpace(after); len(state) > 0 && state[0] != 'T' && state[0] != 'Z' {
			return false
		}
	}
	return true
}
