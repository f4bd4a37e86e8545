package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/redlatch/redlatch/bench/internal/processes"
)

// roleEnv makes this program, or its test binary, one of the processes that wait. It reads orders from standard input,
// a line of JSON each, and answers each on standard output; the end of its input ends it.
const roleEnv = "REDLATCH_SCALE_ROLE"

// order is what a process has to do.
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

// Failed implements processes.Answer.
func (a answer) Failed() string { return a.Error }

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

// gather starts n processes, and has them connect.
func gather(n int, server string) (*processes.Group[order, answer], error) {
	c, err := processes.Start[order, answer](n, 10*time.Minute, roleEnv+"=waiter", "GOMAXPROCS=1")
	if err != nil {
		return nil, err
	}
	if _, err = c.Ask(func(int) order { return order{Do: "open", Server: server} }); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}
