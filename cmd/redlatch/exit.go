//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"syscall"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// The exit codes, as flock(1), timeout(1) and sysexits.h have them.
const (
	exitConflict = 1 // flock -E: another held it for as long as --wait; "no" where a command asks something
	// EX_USAGE: a flag, an argument or a variable of the environment cannot be used, by itself or with this server;
	// nothing was changed
	exitUsage    = 64
	exitData     = 65  // EX_DATAERR: what is on the server, or in a file, is not what the command needs
	exitCommand  = 69  // EX_UNAVAILABLE: the command to run could not be started, as in flock
	exitSoftware = 70  // EX_SOFTWARE: anything else
	exitOS       = 71  // EX_OSERR
	exitServer   = 75  // EX_TEMPFAIL: the server could not be asked, or gave no answer; trying again may help
	exitDenied   = 77  // EX_NOPERM: the server refuses the user, or the user lacks a right
	exitTime     = 124 // timeout(1): the command was stopped because --max-hold or --lease was over
	exitLost     = 125 // the lock or permit was lost before the command had ended
	exitSignal   = 128 // and the number of the signal
)

// coded is an error with the exit code that it stands for. Without an error nothing is printed.
type coded struct {
	code int
	err  error
}

func (c coded) Error() string {
	if c.err == nil {
		return "exit status " + strconv.Itoa(c.code)
	}
	return c.err.Error()
}

func (c coded) Unwrap() error { return c.err }

// usage is the refusal of what the user wrote.
func usage(format string, args ...any) error {
	return coded{exitUsage, fmt.Errorf(format, args...)}
}

// silent is an answer by exit code alone.
func silent(code int) error { return coded{code: code} }

// codes tells the exit code of an error of the library; the first that matches counts. Errors may be joined, so what is
// worse stands first.
var codes = []struct {
	err  error
	code int
}{
	{redlatch.ErrInvalidName, exitUsage},
	{redlatch.ErrInvalidOption, exitUsage},
	{redlatch.ErrOutOfRange, exitUsage},
	{redlatch.ErrDenied, exitDenied},
	{redlatch.ErrWrongType, exitData},
	{redlatch.ErrNewer, exitData},
	{rsemaphore.ErrCapacityMismatch, exitData},
	{redlatch.ErrCorrupt, exitData},
	{redlatch.ErrMismatch, exitData},
	{redlatch.ErrLost, exitLost},
	{stock.ErrNoStock, exitConflict},
	{stock.ErrLater, exitServer},
	{redlatch.ErrNotAcquired, exitConflict},
	{redlatch.ErrNotReplicated, exitServer},
	{redlatch.ErrUnavailable, exitServer},
	{redlatch.ErrUnknownOutcome, exitServer},
	{redlatch.ErrClosed, exitServer},
	{context.Canceled, exitSignal + int(syscall.SIGINT)},
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var c coded
	if errors.As(err, &c) {
		return c.code
	}
	for _, k := range codes {
		if errors.Is(err, k.err) {
			return k.code
		}
	}
	return exitSoftware
}

var longWord = regexp.MustCompile(`(\S{100})\S{101,}`)

// short is a message without what would fill screens: names and values may have 64 KiB.
func short(text string) string {
	return fmt.Sprintf("%.2000s", longWord.ReplaceAllString(text, "${1}…"))
}
