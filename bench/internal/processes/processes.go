// Package processes has the processes of a benchmark, which get orders and answer, a line of JSON each.
package processes

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

// Group is some processes of this program. O is an order, A an answer.
type Group[O any, A Answer] struct {
	members  []*member
	patience time.Duration
}

type member struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	out    *json.Decoder
	ended  sync.Once
}

// Start starts this very program n times, with env besides its own environment. It reads orders from standard input,
// whose end means that it is to end, and answers on standard output. patience is how long an answer may take.
func Start[O any, A Answer](n int, patience time.Duration, env ...string) (*Group[O, A], error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Group[O, A]{patience: patience}
	for range n {
		h := &member{cmd: exec.Command(self)}
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
		c.members = append(c.members, h)
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Send gives each process its order.
func (c *Group[O, A]) Send(o func(i int) O) error {
	for i, h := range c.members {
		if err := h.orders.Encode(o(i)); err != nil {
			return fmt.Errorf("process %d: %w", i, err)
		}
	}
	return nil
}

// Receive takes in the answer of each process. One that keeps it waiting for too long is killed.
func (c *Group[O, A]) Receive() ([]A, error) {
	answers := make([]A, len(c.members))
	for i, h := range c.members {
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

// Ask is Send and Receive.
func (c *Group[O, A]) Ask(o func(i int) O) ([]A, error) {
	if err := c.Send(o); err != nil {
		return nil, err
	}
	return c.Receive()
}

// Stop ends the processes and waits for them. It may be called again.
func (c *Group[O, A]) Stop() {
	for _, h := range c.members {
		h.in.Close()
	}
	var all sync.WaitGroup
	for _, h := range c.members {
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
