//go:build !linux

package main

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from reaching the processes that the harness ends itself.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
