//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redlatch/redlatch"
)

const topHelp = `top shows what inspect shows, again and again, until q or ctrl-c. With names it asks for these every
--interval. Without, it looks for what is held every --search, as inspect does, and asks for what it found every
--interval.

If stdout is not a terminal it writes once and ends.`

func (t *tool) top() *cobra.Command {
	s := search{tool: t}
	var interval, again time.Duration
	c := &cobra.Command{
		Use: "top [name...]", Short: "watch who holds and who waits", Long: topHelp,
		Example: "  redlatch top\n  redlatch top nightly-report deploy --interval 500ms",
		RunE: func(c *cobra.Command, names []string) error {
			if err := s.check(names, c.Flags().Changed); err != nil {
				return err
			}
			if interval < 100*time.Millisecond {
				return usage("--interval %v: must be at least 100ms", interval)
			}
			if again < time.Second {
				return usage("--search %v: must be at least 1s", again)
			}
			ctx, stop := interruptible(c)
			defer stop()
			return t.server.with(ctx, func(red *redlatch.Client) error {
				v := &view{search: s, red: red, names: names, found: names, interval: interval, again: again}
				screen, ok := t.out.(*os.File)
				if !ok || !term.IsTerminal(int(screen.Fd())) {
					frame, err := v.frame(ctx)
					t.out.Write(frame)
					return err
				}
				return v.live(ctx, screen)
			})
		},
	}
	s.flags(c.Flags())
	c.Flags().DurationVar(&interval, "interval", time.Second, "refresh after this `time`")
	c.Flags().DurationVar(&again, "search", 10*time.Second, "without names: search again after this `time`")
	return c
}

// view is what top shows.
type view struct {
	search
	red             *redlatch.Client
	names, found    []string
	searched        time.Time
	interval, again time.Duration
}

func (v *view) frame(ctx context.Context) ([]byte, error) {
	if len(v.names) == 0 && (v.searched.IsZero() || time.Since(v.searched) >= v.again) {
		found, err := v.search.names(ctx, v.red.Hub().Client())
		if err != nil {
			return nil, err
		}
		v.found, v.searched = found, time.Now()
	}
	var all []status
	for _, name := range v.found {
		s, err := look(ctx, v.red, v.server.prefix, name)
		if err != nil && len(v.names) > 0 {
			return nil, err
		}
		if err == nil && (s.Held || len(v.names) > 0) {
			all = append(all, s)
		}
	}
	held, waits := 0, 0
	for _, s := range all {
		held += len(s.Holders)
		waits += len(s.Waiters)
	}
	u, _ := v.server.address()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s  %d names, %d held, %d wait\n\n", redacted(u), time.Now().Format(time.TimeOnly), len(all),
		held, waits)
	writeTable(&b, all, false)
	return b.Bytes(), nil
}

// live draws until q, ctrl-c or the end of ctx. In raw mode ctrl-c is a byte.
func (v *view) live(ctx context.Context, screen *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if in, ok := v.in.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return coded{exitOS, err}
		}
		defer func() { _ = term.Restore(int(in.Fd()), before) }()
		go func() {
			awaitQuit(in)
			cancel()
		}()
	}
	fmt.Fprint(screen, "\x1b[?1049h\x1b[?25l")       // another screen, no cursor
	defer fmt.Fprint(screen, "\x1b[?25h\x1b[?1049l") // back
	tick := time.NewTicker(v.interval)
	defer tick.Stop()
	for {
		frame, err := v.frame(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			frame = fmt.Appendf(nil, "%s; asking again\n", short(words(err)))
		}
		draw(screen, frame)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// awaitQuit reads keys until q or ctrl-c, or until there are no more.
func awaitQuit(in io.Reader) {
	for b := make([]byte, 1); ; {
		if n, err := in.Read(b); err != nil || n == 1 && (b[0] == 'q' || b[0] == 'Q' || b[0] == 3) {
			return
		}
	}
}

// draw writes over the last frame: what fits, each line cleared to its end, and what is below cleared.
func draw(screen *os.File, frame []byte) {
	width, height, err := term.GetSize(int(screen.Fd()))
	if err != nil || width < 1 || height < 2 {
		width, height = 80, 24
	}
	lines := strings.Split(strings.TrimRight(string(frame), "\n"), "\n")
	if len(lines) > height-2 {
		lines = append(lines[:height-2], "...")
	}
	lines = append(lines, "q: quit")
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range lines {
		if r := []rune(l); len(r) > width {
			l = string(r[:width])
		}
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	screen.WriteString(b.String())
}
