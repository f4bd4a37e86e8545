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

// winnersFile is the file that -out names. Whether it can be written is checked before the sale. After the sale a file
// of another name is written in the same folder and renamed, so that a full disk does not leave half a list in place of
// an older one.
type winnersFile struct {
	path string
	temp *os.File
	mode fs.FileMode
	into *os.File // written directly: a pipe or device

	amounts bool // a third column, of a red packet
}

func openWinners(path, claims string) (*winnersFile, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
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

func (w *winnersFile) write(wins []win) error { return w.writeAll(wins, nil) }

// writeAll is write with the winners' amounts.
func (w *winnersFile) writeAll(wins []win, cents map[int64]int64) error {
	if !w.amounts {
		cents = nil
	}
	if w.into != nil {
		return errors.Join(writeWinners(w.into, wins, cents), w.into.Close())
	}
	err := errors.Join(writeWinners(w.temp, wins, cents), w.temp.Chmod(w.mode), w.temp.Close())
	if err == nil {
		err = os.Rename(w.temp.Name(), w.path)
	}
	if err != nil {
		os.Remove(w.temp.Name())
	}
	return err
}

func writeWinners(to io.Writer, wins []win, cents map[int64]int64) error {
	c := csv.NewWriter(to)
	header := []string{"ordinal", "user"}
	if cents != nil {
		header = append(header, "cents")
	}
	c.Write(header) // errors stay in c until Flush
	for _, w := range wins {
		row := []string{strconv.FormatInt(w.ordinal, 10), w.user}
		if cents != nil {
			row = append(row, strconv.FormatInt(cents[w.ordinal], 10))
		}
		c.Write(row)
	}
	c.Flush()
	return c.Error()
}
