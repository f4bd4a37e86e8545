package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// console is stderr: messages, and below them a line of progress that is drawn over itself. Where stderr is no
// terminal, progress is a plain line now and then.
type console struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	silent   bool   // no progress: the user is typing there
	shown    string // the progress line on the screen now
	quietFor time.Duration
	last     time.Time // of the last plain progress line
}

const (
	redraw     = 100 * time.Millisecond
	plainEvery = 5 * time.Second
)

func newConsole(w io.Writer, now time.Time) *console {
	return &console{w: w, terminal: isTerminal(w) && os.Getenv("TERM") != "dumb", quietFor: plainEvery, last: now}
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// say writes a message on a line of its own.
func (c *console) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
	fmt.Fprintf(c.w, "flashsale: "+format+"\n", args...)
}

// progress shows line until the next one.
func (c *console) progress(line string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent {
		return
	}
	if c.terminal {
		// autowrap off while it is drawn: a line wider than the window is cut, where a wrapped one could not be drawn over
		fmt.Fprintf(c.w, "\r\x1b[?7l%s\x1b[K\x1b[?7h", line)
		c.shown = line
	} else if now.Sub(c.last) >= c.quietFor {
		c.last = now
		fmt.Fprintf(c.w, "flashsale: %s\n", line)
	}
}

// end takes the progress line away.
func (c *console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
}

func (c *console) erase() {
	if c.shown != "" {
		fmt.Fprint(c.w, "\r\x1b[K")
		c.shown = ""
	}
}

// prefixed passes on what a worker writes to its stderr, line by line.
type prefixed struct {
	c      *console
	prefix string
	rest   []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		i := bytes.IndexByte(p.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		p.c.say("%s: %s", p.prefix, bytes.TrimRight(p.rest[:i], "\r"))
		p.rest = p.rest[i+1:]
	}
}

// end passes on a last line that has no end.
func (p *prefixed) end() {
	if len(p.rest) > 0 {
		p.Write([]byte("\n"))
	}
}
