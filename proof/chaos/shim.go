package main

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	preload = "LD_PRELOAD"
	shimDir = "REDLATCH_CHAOS_CLOCK"
)

// shimSource has a server read its wall clock from a file with what to add to it, named for its process id.
//
//go:embed clock.c.txt
var shimSource []byte

// shim has every server that is started from now on read its wall clock from a file of its own. why says what is
// missing for that.
var shim = sync.OnceValue(func() (why string) {
	dir, err := os.MkdirTemp("", "chaos-clock-")
	if err != nil {
		return err.Error()
	}
	source, lib := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, shimSource, 0o600); err != nil {
		return err.Error()
	}
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-o", lib, source).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "no C compiler; install gcc"
	}
	if err != nil {
		return fmt.Sprintf("gcc: %v: %s", err, out)
	}
	if err := errors.Join(os.Setenv(preload, lib), os.Setenv(shimDir, dir)); err != nil {
		return err.Error()
	}
	return ""
})

// unshim removes the files.
func unshim() {
	if dir := os.Getenv(shimDir); dir != "" {
		os.RemoveAll(dir)
	}
}

// plain is the environment without the shim.
func plain() (env []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, preload+"=") && !strings.HasPrefix(e, shimDir+"=") {
			env = append(env, e)
		}
	}
	return env
}

// stepClock sets the wall clock of a server forward, or back, from what it is.
func stepClock(pid int, d time.Duration) error {
	f, err := os.OpenFile(filepath.Join(os.Getenv(shimDir), strconv.Itoa(pid)), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [8]byte
	if _, err := f.ReadAt(b[:], 0); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(b[:], binary.LittleEndian.Uint64(b[:])+uint64(d))
	_, err = f.WriteAt(b[:], 0) // in place: the server has it mapped
	return err
}
