package redlatchfence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Files guards files of one machine. A resource is a path; the token is in path + ".fence", which every process locks
// (flock) while it checks and writes, and which is never deleted: deleting it forgets the token.
//
// It works between processes of one machine, on a local file system of Unix. It does not across machines: on NFS and
// other network file systems a lock may be lost by a client that is suspended, which then writes all the same, and some
// have no locks. It cannot stop what writes the file in another way. A process that is suspended during a write keeps
// the others waiting until it goes on or dies. Elsewhere than on Unix each call fails with errors.ErrUnsupported.
type Files struct {
	// Perm is the mode of a file that Write creates, before the umask. Defaults to 0o644.
	Perm fs.FileMode
}

const (
	fenceWidth = 21 // of a token with zeros in front, and a newline
	firstPoll  = time.Millisecond
	lastPoll   = 20 * time.Millisecond
)

// Advance is Do without an act: see Guard.
func (f Files) Advance(ctx context.Context, path string, token Token) error {
	return f.Do(ctx, path, token, func(context.Context) error { return nil })
}

// Write replaces the file at path with data: readers see the old file or the new one. Both are in permanent storage
// when it returns nil. After an error that is not ErrStale or ErrInvalid the file is the old one or the new one.
func (f Files) Write(ctx context.Context, path string, token Token, data []byte) error {
	return f.Do(ctx, path, token, func(context.Context) error { return f.replace(path, data) })
}

// Do calls act if the token is not stale, and nothing else for the path meanwhile, in any process: see Exclusive. The
// token is in permanent storage before act is called, and stays seen whatever act returns.
func (f Files) Do(ctx context.Context, path string, token Token, act func(ctx context.Context) error) error {
	if err := admissible(path, token); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	file, err := os.OpenFile(path+".fence", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // which unlocks it
	for poll := firstPoll; ; poll = min(2*poll, lastPoll) {
		locked, err := tryLock(file)
		if err != nil {
			return fmt.Errorf("redlatchfence: lock %s: %w", file.Name(), err)
		}
		if locked {
			break
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	// Under the lock: 33 that waited for 34 reads 34 here.
	seen, err := readFence(file)
	if err != nil {
		return err
	}
	if token < seen {
		return stale(path, token)
	}
	if token > seen {
		// One write of a few bytes in one block: a process that is killed has made it or not.
		if _, err := file.WriteAt(fmt.Appendf(nil, "%0*d\n", fenceWidth-1, token), 0); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
	}
	return act(ctx)
}

func readFence(file *os.File) (Token, error) {
	text := make([]byte, fenceWidth+1)
	n, err := file.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if n == 0 {
		return 0, nil // it was just created
	}
	token, err := strconv.ParseInt(strings.TrimSuffix(string(text[:n]), "\n"), 10, 64)
	if err == nil && n == fenceWidth {
		err = Token(token).Check()
	}
	if err != nil || n != fenceWidth {
		return 0, fmt.Errorf("redlatchfence: %s holds no token: %.32q", file.Name(), text[:n])
	}
	return Token(token), nil
}

// replace has another file take the place of the one at path.
func (f Files) replace(path string, data []byte) error {
	next := path + ".next" // under the lock: no other process has it. What a process that died left is overwritten.
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, cmp.Or(f.Perm, 0o644))
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
