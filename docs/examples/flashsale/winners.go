package main

import (
	"encoding/csv"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// winnersFile is where -out goes. It is proved writable before the sale and written after it, beside the name first
// and then renamed, so that a full disk does not leave half a list in place of an older one.
type winnersFile struct {
	path string
	temp *os.File
	mode fs.FileMode
	into *os.File // written directly: a pipe or device
}

func openWinners(path, claims string) (*winnersFile, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	w := &winnersFile{path: path, mode: 0o644}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, errors.New("is a directory")
	case err == nil:
		if in, err := os.Stat(claims); err == nil && os.SameFile(in, info) {
			return nil, errors.New("is the file of -claims")
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, plain(err)
		}
		if !info.Mode().IsRegular() {
			w.into = f
			return w, nil
		}
		f.Close()
		w.mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, plain(err)
	}
	if w.temp, err = os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"); err != nil {
		return nil, plain(err)
	}
	return w, nil
}

// abandon leaves everything as it was.
func (w *winnersFile) abandon() {
	if w.into != nil {
		w.into.Close()
		return
	}
	w.temp.Close()
	os.Remove(w.temp.Name())
}

func (w *winnersFile) write(wins []win) error {
	if w.into != nil {
		return errors.Join(writeWinners(w.into, wins), w.into.Close())
	}
	err := errors.Join(writeWinners(w.temp, wins), w.temp.Chmod(w.mode), w.temp.Close())
	if err == nil {
		err = os.Rename(w.temp.Name(), w.path)
	}
	if err != nil {
		os.Remove(w.temp.Name())
	}
	return err
}

func writeWinners(to io.Writer, wins []win) error {
	c := csv.NewWriter(to)
	c.Write([]string{"ordinal", "user"}) // errors stay in c until Flush
	for _, w := range wins {
		c.Write([]string{strconv.FormatInt(w.ordinal, 10), w.user})
	}
	c.Flush()
	return c.Error()
}
