package redistest

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from reaching the server and takes the server down with the test process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
