package main

import (
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
	shown    bool      // a progress line is on the screen
	last     time.Time // of the last plain one
}

const plainEvery = 2 * time.Second

func newConsole(w io.Writer) *console {
	c := &console{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		c.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	return c
}

// say writes a line.
func (c *console) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
	fmt.Fprintf(c.w, format+"\n", args...)
}

// progress shows line until the next one.
func (c *console) progress(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.terminal:
		// a line wider than the window is cut: a wrapped one could not be drawn over
		fmt.Fprintf(c.w, "\r\x1b[?7l%s\x1b[K\x1b[?7h", line)
		c.shown = true
	case time.Since(c.last) >= plainEvery:
		c.last = time.Now()
		fmt.Fprintln(c.w, line)
	}
}

// end takes the progress line away.
func (c *console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
}

func (c *console) erase() {
	if c.shown {
		fmt.Fprint(c.w, "\r\x1b[K")
		c.shown = false
	}
}
