package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// roleEnv makes this program, or its test binary, one of the processes that wait. It reads orders from standard input, a line of
// JSON each, and answers each on standard output; the end of its input ends it.
const roleEnv = "REDLATCH_SCALE_ROLE"

// order is what a process is told to do.
type order struct {
	Do     string // open, wait, look, served, left
	Server string `json:",omitempty"`
	Names  int    `json:",omitempty"` // how many it waits for: First, First+Step, …
	First  int    `json:",omitempty"`
	Step   int    `json:",omitempty"`
}

// answer is what it says; what it has more than before it waited.
type answer struct {
	Error      string `json:",omitempty"`
	Goroutines int
	Bytes      int64
}

// serve is the main function of a process that waits.
func serve(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	var m *member
	var served func() error
	var goroutines int
	var bytes int64
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil // what is open ends with the process
		} else if err != nil {
			return err
		}
		var a answer
		var err error
		switch {
		case o.Do == "open":
			if m, err = open(o.Server); err == nil {
				err = m.warm(ctx)
			}
			goroutines, bytes = mine()
		case o.Do == "wait":
			served = m.queue(ctx, o.Names, func(i int) string { return numbered(o.First + i*o.Step) })
		case o.Do == "served":
			err = served()
		default:
			if o.Do == "left" {
				time.Sleep(grace + 500*time.Millisecond)
			}
			a.Goroutines, a.Bytes = mine()
			a.Goroutines -= goroutines
			a.Bytes -= bytes
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// crew is the processes of one measurement.
type crew []*hand

type hand struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	out    *json.Decoder
	ended  sync.Once
}

// gather starts them, and has them connect.
func gather(n int, server string) (c crew, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for range n {
		h := &hand{cmd: exec.Command(self)}
		h.cmd.Env = append(os.Environ(), roleEnv+"=waiter", "GOMAXPROCS=1")
		h.cmd.Stderr = os.Stderr
		if h.in, err = h.cmd.StdinPipe(); err != nil {
			break
		}
		var out io.Reader
		if out, err = h.cmd.StdoutPipe(); err != nil {
			break
		}
		h.orders, h.out = json.NewEncoder(h.in), json.NewDecoder(out)
		if err = h.cmd.Start(); err != nil {
			break
		}
		c = append(c, h)
	}
	if err == nil {
		_, err = c.ask(func(int) order { return order{Do: "open", Server: server} })
	}
	if err != nil {
		c.scatter()
	}
	return c, err
}

// patience is how long an answer may take.
const patience = 10 * time.Minute

func (c crew) ask(o func(i int) order) ([]answer, error) {
	for i, h := range c {
		if err := h.orders.Encode(o(i)); err != nil {
			return nil, fmt.Errorf("process %d: %w", i, err)
		}
	}
	answers := make([]answer, len(c))
	for i, h := range c {
		late := time.AfterFunc(patience, func() { h.cmd.Process.Kill() })
		err := h.out.Decode(&answers[i])
		late.Stop()
		if err == nil && answers[i].Error != "" {
			err = errors.New(answers[i].Error)
		}
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", i, err)
		}
	}
	return answers, nil
}

// all has every process do the same.
func (c crew) all(do string) ([]answer, error) {
	return c.ask(func(int) order { return order{Do: do} })
}

// scatter ends the processes and waits for them.
func (c crew) scatter() {
	for _, h := range c {
		h.in.Close()
	}
	for _, h := range c {
		h.ended.Do(func() {
			late := time.AfterFunc(10*time.Second, func() { h.cmd.Process.Kill() })
			defer late.Stop()
			h.cmd.Wait()
		})
	}
}
