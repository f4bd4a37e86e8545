package main

import (
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"github.com/redlatch/redlatch/bench/internal/load"
)

// arena is memory that all processes of one measurement share. In it they see, without any server, who is inside,
// whether the run counts yet, and how often the lock was acquired.
type arena struct {
	path string
	mem  []byte
	*load.Watch
}

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
	return &arena{f.Name(), mem, load.NewWatch((*load.Words)(unsafe.Pointer(&mem[0])), load.NewClock())}, nil
}

func (a *arena) Close() { syscall.Munmap(a.mem) }
