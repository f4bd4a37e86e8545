// Package crew is the processes of a benchmark, which get orders and answer, a line of JSON each.
package crew

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Answer says what went wrong, if anything did.
type Answer interface{ Failed() string }

// Crew is some processes. O is an order, A an answer.
type Crew[O any, A Answer] struct {
	hands    []*hand
	patience time.Duration
}

type hand struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	out    *json.Decoder
	ended  sync.Once
}

// Gather starts this very program n times, with env besides its own environment. It reads orders from standard input,
// whose end means that it is to end, and answers on standard output. patience is how long an answer may take.
func Gather[O any, A Answer](n int, patience time.Duration, env ...string) (*Crew[O, A], error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Crew[O, A]{patience: patience}
	for range n {
		h := &hand{cmd: exec.Command(self)}
		h.cmd.Env = append(os.Environ(), env...)
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
		c.hands = append(c.hands, h)
	}
	if err != nil {
		c.Scatter()
		return nil, err
	}
	return c, nil
}

// Tell gives each process its order.
func (c *Crew[O, A]) Tell(o func(i int) O) error {
	for i, h := range c.hands {
		if err := h.orders.Encode(o(i)); err != nil {
			return fmt.Errorf("process %d: %w", i, err)
		}
	}
	return nil
}

// Hear takes in the answer of each process. One that keeps it waiting for too long is killed.
func (c *Crew[O, A]) Hear() ([]A, error) {
	answers := make([]A, len(c.hands))
	for i, h := range c.hands {
		late := time.AfterFunc(c.patience, func() { h.cmd.Process.Kill() })
		err := h.out.Decode(&answers[i])
		late.Stop()
		if err == nil && answers[i].Failed() != "" {
			err = errors.New(answers[i].Failed())
		}
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", i, err)
		}
	}
	return answers, nil
}

// Ask is Tell and Hear.
func (c *Crew[O, A]) Ask(o func(i int) O) ([]A, error) {
	if err := c.Tell(o); err != nil {
		return nil, err
	}
	return c.Hear()
}

// Scatter ends the processes and waits for them. It may be called again.
func (c *Crew[O, A]) Scatter() {
	for _, h := range c.hands {
		h.in.Close()
	}
	var all sync.WaitGroup
	for _, h := range c.hands {
		all.Go(func() {
			h.ended.Do(func() {
				late := time.AfterFunc(10*time.Second, func() { h.cmd.Process.Kill() })
				defer late.Stop()
				h.cmd.Wait()
			})
		})
	}
	all.Wait()
}
