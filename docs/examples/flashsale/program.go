package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// Exit statuses.
const (
	exitOK     = 0
	exitBad    = 1 // the check failed, or the run is incomplete
	exitUsage  = 2
	exitSignal = 128 // plus the signal's number
)

// program is the process's surroundings.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	signals        <-chan os.Signal
	tune           func(*sale) // for tests
}

// run is the parent process; it returns the exit status.
func (p program) run(args []string) int {
	say := func(format string, a ...any) { fmt.Fprintf(p.stderr, "flashsale: "+format+"\n", a...) }
	o, err := parseFlags(args)
	if isHelp(err) {
		io.WriteString(p.stdout, help)
		return exitOK
	}
	if err != nil {
		say("%v (-help lists the flags)", err)
		return exitUsage
	}
	var input source = &crowd{users: o.users}
	if o.claims != "" {
		f, closer, err := openClaims(o.claims, p.stdin)
		if err != nil {
			say("-claims %s: %v", o.claims, err)
			return exitUsage
		}
		defer closer.Close()
		input = f
	}
	out, err := p.winners(o)
	if err != nil {
		say("-out %s: %v", o.out, err)
		return exitUsage
	}
	s := newSale(o, newConsole(p.stderr, time.Now()))
	if p.tune != nil {
		p.tune(s)
	}
	shop, status, end := s.prepare()
	defer end()
	if status != exitOK {
		if out != nil {
			out.abandon()
		}
		return status
	}
	if o.claims == "-" && isTerminal(p.stdin) {
		s.console.say("reading claims from the terminal, one a line; Ctrl-D ends them")
		s.console.silent = true
	}
	r := s.sell(input, shop, p.signals)
	if out != nil {
		if err := out.writeAll(s.books.winners(), s.books.amounts()); err != nil {
			s.console.say("-out %s: %v", o.out, plain(err))
			r.Error = joinText(r.Error, fmt.Sprintf("-out %s: %v", o.out, plain(err)))
			if r.Exit == exitOK {
				r.Exit = exitBad
			}
		}
	}
	if err := r.print(p.stdout, o.json); err != nil {
		say("writing the summary: %v", err)
		return max(r.Exit, exitBad)
	}
	return r.Exit
}

// winners is the file for the winners; nil: none is asked for.
func (program) winners(o options) (*winnersFile, error) {
	if o.out == "" {
		return nil, nil
	}
	out, err := openWinners(o.out, o.claims)
	if err != nil {
		return nil, err
	}
	out.amounts = o.Packet > 0
	return out, nil
}

func newSale(o options, c *console) *sale {
	s := &sale{
		options: o, patience: patience{Retry: 10 * time.Second, Grace: 3 * time.Second, Quiet: 30 * time.Second},
		server: server{Addrs: o.addrs}, name: o.name, private: o.name == "", parallel: 64, maxDeaths: 10,
		started: func(int, *os.Process) {}, onAnswer: func() {}, pids: map[int]int{},
		console: c, books: newBooks(),
		todo: make(chan claim, 256), served: make(chan struct{}), stop: make(chan struct{}), hurry: make(chan struct{}),
	}
	s.command = func(int) (*exec.Cmd, error) {
		exe, err := os.Executable()
		if err != nil {
			return nil, deadError{fmt.Sprintf("this program cannot find itself: %v", err)}
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), workerEnv+"=1")
		return cmd, nil
	}
	if s.private {
		var b [4]byte
		rand.Read(b[:]) // never fails
		s.name = "flashsale-" + time.Now().UTC().Format("20060102-150405") + "-" + hex.EncodeToString(b[:])
	}
	return s
}

// prepare starts the embedded server if that is wanted, connects, and makes sure that the stock can be sold as asked.
// Nothing has been changed in Redis when the status it returns is not exitOK. end undoes it.
func (s *sale) prepare() (sh *shop, status int, end func()) {
	var ends []func()
	end = func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}
	if len(s.addrs) == 0 {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.Start(); err != nil {
			s.console.say("cannot start the embedded server: %v", err)
			return nil, exitBad, end
		}
		ends = append(ends, m.Close)
		s.server = server{Addrs: []string{m.Addr()}, Embedded: true}
		s.parallel = 16 // miniredis runs one script at a time, slowly: more would only wait longer
	}
	sh, err := connect(s.server, s.name, s.form)
	if err != nil {
		s.console.say("%v", err)
		return nil, exitBad, end
	}
	ends = append(ends, sh.close)
	ctx, cancel := context.WithTimeout(context.Background(), s.Retry)
	defer cancel()
	st, err := sh.status(ctx)
	switch {
	case errors.Is(err, redlatch.ErrInvalidName):
		s.console.say("-name %q: %v", s.name, err)
		return nil, exitUsage, end
	case errors.Is(err, errOtherTotal):
		s.console.say("-redpacket %s: %v; give that, or choose another -name", money(s.Packet), err)
		return nil, exitUsage, end
	case err != nil:
		s.console.say("cannot read stock %q on %v: %v", s.name, s.server, err)
		return nil, exitBad, end
	case st.Phase == stock.PhaseAbsent:
		return sh, exitOK, end
	case st.Phase != stock.PhaseOpen:
		s.console.say("-name %q: this stock is there and %v; Redis keeps it for another %v, choose another name", s.name,
			st.Phase, st.UntilGone.Round(time.Minute))
		return nil, exitUsage, end
	case s.unitsGiven && st.Limit != s.units:
		s.console.say("-stock %d: stock %q was opened with %s; leave -stock out to go on with it, or choose another -name",
			s.units, s.name, plural(st.Limit, "unit"))
		return nil, exitUsage, end
	}
	s.units = st.Limit
	s.console.say("stock %q is open: %s left of %s", s.name, group(st.Remaining), group(st.Limit))
	return sh, exitOK, end
}

// exitStatus is 128 and the number of the signal, as shells count it.
func exitStatus(sig os.Signal) int {
	if n, ok := sig.(syscall.Signal); ok {
		return exitSignal + int(n)
	}
	return exitSignal + int(syscall.SIGINT)
}

// listen takes the signals that end a run.
func listen() <-chan os.Signal {
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return c
}
