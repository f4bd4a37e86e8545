package main

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// arena is memory that all processes of one measurement share. In it they see, without any server, who is inside,
// whether the run counts yet, and how often the lock was acquired.
type arena struct {
	path string
	mem  []byte
	*arenaWords
}

type arenaWords struct {
	phase    atomic.Int64
	inside   atomic.Int64 // number of the worker in the critical section, from 1; 0: none
	overlaps atomic.Int64 // entries while another was inside
	count    atomic.Int64 // guarded by the lock under test only: read at entry, written one higher when leaving
	entered  atomic.Int64 // what count should be
	left     atomic.Int64 // when the last worker left, see newClock
	idle     atomic.Int64 // the longest time from a leaving to the next entering
}

// Phases of a run.
const (
	warming int64 = iota
	measuring
	over
)

const arenaSize = 4096

func newArena() (*arena, error) {
	f, err := os.CreateTemp("", "bench-arena-")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(arenaSize); err != nil {
		return nil, err
	}
	return mapArena(f)
}

func openArena(path string) (*arena, error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mapArena(f)
}

func mapArena(f *os.File) (*arena, error) {
	mem, err := syscall.Mmap(int(f.Fd()), 0, arenaSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &arena{f.Name(), mem, (*arenaWords)(unsafe.Pointer(&mem[0]))}, nil
}

func (a *arena) Close() { syscall.Munmap(a.mem) }

// broken is how often the lock let in a second worker, found in two ways. It is right when the workers are done.
func (a *arena) broken() (overlaps, lost int64) {
	return a.overlaps.Load(), a.entered.Load() - a.count.Load()
}

// idleUntil counts the time since the last worker left.
func (a *arena) idleUntil(now int64) {
	gap := now - a.left.Load()
	for longest := a.idle.Load(); gap > longest; longest = a.idle.Load() {
		if a.idle.CompareAndSwap(longest, gap) {
			return
		}
	}
}

// newClock returns a clock that processes which start at about the same time share. It reads the wall clock once, and
// goes on with the monotonic one.
func newClock() func() int64 {
	start := time.Now()
	return func() int64 { return start.UnixNano() + int64(time.Since(start)) }
}

// section is the load.Section of one process. Entries are judged only while it measures: at the end every waiter's
// context is cancelled, and a peer whose holds depend on it releases the lock under its holder then.
type section struct {
	*arena
	now   func() int64
	first int64   // number of the first worker of this process
	seen  []int64 // by worker: count at entry, -1 if it was not measuring
}

func (s *section) Enter(worker int64) {
	seen := &s.seen[worker-s.first]
	if s.phase.Load() != measuring {
		*seen = -1
		s.inside.Store(worker + 1)
		return
	}
	s.idleUntil(s.now())
	if !s.inside.CompareAndSwap(0, worker+1) {
		s.overlaps.Add(1)
		s.inside.Store(worker + 1)
	}
	s.entered.Add(1)
	*seen = s.count.Load()
}

func (s *section) Leave(worker int64) {
	if seen := s.seen[worker-s.first]; seen >= 0 {
		s.count.Store(seen + 1)
	}
	s.left.Store(s.now())
	s.inside.CompareAndSwap(worker+1, 0)
}
