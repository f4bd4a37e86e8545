package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/bench/internal/load"
)

// roleEnv makes this program, or its test binary, one of the processes that wait. It reads orders from standard input,
// a line of JSON each, and answers each on standard output; the end of its input ends it.
const roleEnv = "REDLATCH_HERD_ROLE"

// order is what a process has to do.
type order struct {
	Do string // open, run (until the next order), await

	Kind      string        `json:",omitempty"`
	Server    string        `json:",omitempty"`
	Index     int           `json:",omitempty"`
	Processes int           `json:",omitempty"`
	Waiters   int           `json:",omitempty"`
	Permits   int           `json:",omitempty"`
	Hold      time.Duration `json:",omitempty"`

	// Of a run: what is released from From on counts, in windows. It is a wall-clock time, which all processes of a
	// machine share.
	From    int64         `json:",omitempty"`
	Window  time.Duration `json:",omitempty"`
	Windows int           `json:",omitempty"`
}

// answer is what it says.
type answer struct {
	Error   string  `json:",omitempty"`
	Windows []int64 `json:",omitempty"` // acquisitions in each

	Waits  load.Histogram `json:",omitzero"`
	Awake  int64          `json:",omitempty"` // when the last waiter was, wall clock
	Errors int64          `json:",omitempty"`
	First  string         `json:",omitempty"` // of the errors
}

// Failed implements processes.Answer.
func (a answer) Failed() string { return a.Error }

type process struct {
	client *client
	kind   kind
	o      order
	orders *json.Decoder
}

// serve is the main function of a process that waits.
func serve(in io.Reader, out io.Writer) error {
	p := &process{orders: json.NewDecoder(in)}
	answers := json.NewEncoder(out)
	for {
		var o order
		err := p.orders.Decode(&o)
		if errors.Is(err, io.EOF) {
			return nil // what is open ends with the process, and with its server
		}
		if err != nil {
			return err
		}
		a, err := p.carryOut(o)
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func (p *process) carryOut(o order) (a answer, err error) {
	switch {
	case o.Do == "open":
		p.o = o
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == o.Kind })
		if i < 0 {
			return a, fmt.Errorf("no kind %q", o.Kind)
		}
		p.kind = kinds[i]
		p.client, err = open(o.Server)
		return a, err
	case p.client == nil:
		return a, fmt.Errorf("order %q before one to open", o.Do)
	case o.Do == "run":
		return p.run(o)
	case o.Do == "await":
		return p.await(), nil
	}
	return a, fmt.Errorf("no order %q", o.Do)
}

// run acquires and releases until the next order, whatever it is.
func (p *process) run(o order) (answer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	part, err := p.kind.part(ctx, p.client, p.o)
	if err != nil {
		return answer{}, err
	}
	done := make(chan answer)
	go func() { done <- part.work(ctx, o) }()
	var next order
	err = p.orders.Decode(&next)
	cancel()
	return <-done, err
}

// work acquires and releases until ctx ends, and counts what falls into the windows of o.
func (p part) work(ctx context.Context, o order) answer {
	a := answer{Windows: make([]int64, o.Windows)}
	to := o.From + int64(o.Window)*int64(o.Windows)
	for ctx.Err() == nil {
		began := time.Now()
		release, err := p.acquire(ctx)
		waited := time.Since(began)
		if now := time.Now().UnixNano(); now >= o.From && (now < to || err != nil) {
			a.Waits.Add(waited)
		}
		if ctx.Err() != nil && err != nil {
			break
		}
		if err == nil {
			time.Sleep(p.hold)
			if now := time.Now().UnixNano(); now >= o.From && now < to {
				a.Windows[(now-o.From)/int64(o.Window)]++
			}
			err = release(context.WithoutCancel(ctx))
		}
		if err != nil {
			a.Errors++
			a.First = err.Error()
		}
		if p.think > 0 && ctx.Err() == nil {
			time.Sleep(p.think)
		}
	}
	return a
}

// await has all waiters of this process wait once.
func (p *process) await() (a answer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range p.o.Waiters {
		wg.Go(func() {
			err := p.kind.await(ctx, p.client, p.o)
			at := time.Now().UnixNano()
			mu.Lock()
			defer mu.Unlock()
			a.Awake = max(a.Awake, at)
			if err != nil {
				a.Errors++
				a.First = err.Error()
			}
		})
	}
	wg.Wait()
	return a
}
