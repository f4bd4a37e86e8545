package main

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from reaching the processes that the harness ends itself, and ends them with it if
// it is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
