package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// child is a process of ours with a role.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	out    *json.Decoder
	errs   tail
}

func startChild(role string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	c.cmd.Stderr = &c.errs
	c.cmd.SysProcAttr = ownGroup()
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.orders, c.out = json.NewEncoder(c.in), json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *child) tell(o order) error {
	if err := c.orders.Encode(o); err != nil {
		return fmt.Errorf("order %q: %w: %s", o.Do, err, &c.errs)
	}
	return nil
}

// hear waits for an answer; a child that gives none within limit is killed.
func (c *child) hear(limit time.Duration) (answer, error) {
	kill := time.AfterFunc(limit, c.kill)
	defer kill.Stop()
	var a answer
	if err := c.out.Decode(&a); err != nil {
		return a, fmt.Errorf("no answer from a worker process within %v: %w: %s", limit, err, &c.errs)
	}
	if a.Error != "" {
		return a, fmt.Errorf("worker process: %s", a.Error)
	}
	return a, nil
}

// patience is how much longer than it should an order may take.
const patience = 20 * time.Second

func (c *child) ask(o order) (answer, error) {
	if err := c.tell(o); err != nil {
		return answer{}, err
	}
	return c.hear(o.Duration + patience)
}

func (c *child) kill() { c.cmd.Process.Kill() }

// end has the child leave and waits for it.
func (c *child) end() {
	c.in.Close()
	late := time.AfterFunc(2*time.Second, c.kill)
	defer late.Stop()
	io.Copy(io.Discard, c.out.Buffered())
	c.cmd.Wait()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailSize = 4096

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if over := len(t.b) - tailSize; over > 0 {
		t.b = append([]byte(nil), t.b[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}

// children are started together and ended together.
type children []*child

func startChildren(n int) (children, error) {
	var all children
	for range n {
		c, err := startChild(workerRole)
		if err != nil {
			all.end()
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (cs children) end() {
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(c.end)
	}
	wg.Wait()
}

// all gives every child its order and waits for all answers.
func (cs children) all(o func(i int) order) ([]answer, error) {
	for i, c := range cs {
		if err := c.tell(o(i)); err != nil {
			return nil, err
		}
	}
	return cs.hear(o(0).Duration + patience)
}

func (cs children) hear(limit time.Duration) ([]answer, error) {
	out := make([]answer, len(cs))
	for i, c := range cs {
		var err error
		if out[i], err = c.hear(limit); err != nil {
			return nil, err
		}
	}
	return out, nil
}
