package cells

import (
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
const shimSource = `#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *step;

__attribute__((constructor)) static void begin(void) {
	char path[4096];
	const char *dir = getenv("REDLATCH_CHAOS_CLOCK");
	if (!dir) return;
	snprintf(path, sizeof path, "%s/%d", dir, (int)getpid());
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600); // not the step of an earlier process of that id
	if (fd < 0) return;
	if (ftruncate(fd, 8) == 0) {
		void *p = mmap(0, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED) step = p;
	}
	close(fd);
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	long r = syscall(SYS_clock_gettime, id, ts);
	if (r == 0 && step && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t ns = (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec + *step;
		ts->tv_sec = ns / 1000000000;
		ts->tv_nsec = ns % 1000000000;
	}
	return r;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	struct timespec ts;
	int r = clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return r;
}

time_t time(time_t *t) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (t) *t = ts.tv_sec;
	return ts.tv_sec;
}
`

// shim has every server that is started from now on read its wall clock from a file of its own. why says what is
// missing for that.
var shim = sync.OnceValue(func() (why string) {
	dir, err := os.MkdirTemp("", "chaos-clock-")
	if err != nil {
		return err.Error()
	}
	source, lib := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, []byte(shimSource), 0o600); err != nil {
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
