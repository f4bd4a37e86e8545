//go:build !unix || solaris || aix

// Command paused stops processes with SIGSTOP, which this system does not have.
package main

func main() { panic("paused: not on this system") }
