package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit statuses.
const (
	exitOK    = 0
	exitBad   = 1
	exitUsage = 2
)

// program is the parent process's surroundings.
type program struct {
	stdout, stderr io.Writer
	tamper         func(*evidence) // for tests: falsifies what is known before it is checked
}

// run is the parent process; it returns the exit status.
func (p program) run(ctx context.Context, args []string) int {
	o, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		io.WriteString(p.stdout, help)
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "shop: %v (-help lists the flags)\n", err)
		return exitUsage
	}
	ok, err := p.sell(ctx, o)
	switch {
	case err != nil:
		fmt.Fprintln(p.stderr, "shop:", err)
		return exitBad
	case !ok:
		return exitBad
	}
	return exitOK
}

// sell runs a sale, prints its report, and reports whether it added up.
func (p program) sell(ctx context.Context, o options) (bool, error) {
	dir, err := os.MkdirTemp("", "redlatch-shop-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	s := &sale{options: o, console: newConsole(p.stderr), news: newNews(), waits: newWaits(), tamper: p.tamper}
	defer s.console.end()
	at, stop, err := serve(o.page, front(s.news))
	if err != nil {
		return false, fmt.Errorf("-page %s: %w", o.page, err)
	}
	defer stop()
	s.console.say("a live page of the sale: http://%s/", at)
	s.premises, err = open(ctx, o, dir, s.waits, s.console.say)
	defer s.premises.close()
	if err != nil {
		return false, err
	}
	r, err := s.run(ctx)
	if err != nil {
		return false, err
	}
	s.console.end()
	if err := r.print(p.stdout); err != nil {
		return false, err
	}
	if o.keep > 0 {
		s.console.say("the page stays for %v; Ctrl-C ends it", o.keep)
		pause(ctx, o.keep)
	}
	return sound(r.findings), nil
}
