package main

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// arena is memory that all processes of one measurement share. Under it they see without asking any server who is
// inside, whether the run counts yet, and how often the lock was acquired.
type arena struct {
	path  string
	mem   []byte
	words *[arenaWords]atomic.Int64
}

const (
	phaseWord    = iota // see below
	insideWord          // who is in the critical section, 0: none is
	overlapsWord        // entries while another was inside
	countWord           // guarded by the lock under test and by nothing else: read at entry, written one higher at leaving
	enteredWord         // what countWord should be
	writtenWord         // of queues: entries of the writer
	leftWord            // of impatient: when the last one left, see newClock
	idleWord            // of impatient: the longest time from one leaving to the next entering
	windowWord          // which window it is
	firstWindow         // and from here on, what was entered in each
)

// Phases of a run.
const (
	warming int64 = iota
	measuring
	over
)

const (
	arenaSize  = 4096
	arenaWords = arenaSize / 8
)

func newArena(dir string) (*arena, error) {
	f, err := os.CreateTemp(dir, "arena-")
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
	return &arena{path: f.Name(), mem: mem, words: (*[arenaWords]atomic.Int64)(unsafe.Pointer(&mem[0]))}, nil
}

func (a *arena) Close() { syscall.Munmap(a.mem) }

func (a *arena) phase() int64        { return a.words[phaseWord].Load() }
func (a *arena) setPhase(p int64)    { a.words[phaseWord].Store(p) }
func (a *arena) acquisitions() int64 { return a.words[enteredWord].Load() }

// broken is how often the lock let in a second worker, found in two ways: by who was inside, and by what the counter
// misses. Ask when the workers are done.
func (a *arena) broken() (overlaps, lost int64) {
	return a.words[overlapsWord].Load(), a.words[enteredWord].Load() - a.words[countWord].Load()
}

// section is the load.Section of one process. Only entries while measuring are judged: at the end every waiter's
// context is cancelled, and a peer whose holds depend on it gives up the lock under its holder then.
type section struct {
	*arena
	first int64   // id of the first worker of this process
	seen  []int64 // by worker: countWord at entry, -1 if it was not measuring
}

func newSection(a *arena, first int64, workers int) *section {
	return &section{a, first, make([]int64, workers)}
}

func (s *section) Enter(worker int64) {
	seen := &s.seen[worker-s.first]
	if s.phase() != measuring {
		*seen = -1
		s.words[insideWord].Store(worker + 1)
		return
	}
	if !s.words[insideWord].CompareAndSwap(0, worker+1) {
		s.words[overlapsWord].Add(1)
		s.words[insideWord].Store(worker + 1)
	}
	s.words[enteredWord].Add(1)
	s.words[firstWindow+int(s.words[windowWord].Load())].Add(1)
	*seen = s.words[countWord].Load()
}

func (s *section) Leave(worker int64) {
	if seen := s.seen[worker-s.first]; seen >= 0 {
		s.words[countWord].Store(seen + 1)
	}
	s.words[insideWord].CompareAndSwap(worker+1, 0)
}
