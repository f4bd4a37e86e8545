package election

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// Observe returns a channel of leaders: first the present leader, then each later one, and the zero Leader whenever
// there is none. The channel is closed when ctx ends or the client is closed.
//
// The observer asks the server after each message and every PollCap. Where the user may not subscribe, or the leaders
// may not publish, it only polls. While the server cannot be asked nothing is sent, and the last leader sent may be
// gone.
//
// The channel has the latest state only: a caller that reads slowly misses leaders in between. It may get the same
// leader twice. The goroutine behind the channel never waits for the caller.
//
// The error is that of the first request: see [Election.Leader].
func (e *Election) Observe(ctx context.Context) (<-chan Leader, error) {
	first, err := e.Leader(ctx)
	if err != nil {
		return nil, err
	}
	leaders := make(chan Leader, 1)
	leaders <- first
	observe := func(open context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(open, cancel)()
		e.observe(ctx, first, leaders)
	}
	if !e.c.session.Background(observe) {
		return nil, e.c.session.Usable(nil)
	}
	return leaders, nil
}

// observe tells of every change. It ends with ctx, which Close ends too, and when the queue is closed.
func (e *Election) observe(ctx context.Context, last Leader, leaders chan Leader) {
	defer close(leaders)
	for {
		now, err := e.change(ctx, last)
		var over *wait.GaveUp
		switch {
		case errors.As(err, &over):
			return
		case err != nil: // the server's answer: asking again helps when something has changed there
			e.c.session.Complain("an observer of an election cannot look who leads", e.name, err)
			script.Pause(ctx, min(e.c.session.PollCap, time.Second))
			continue
		}
		last = now
		select {
		case <-leaders: // a leader that was not read is out of date
		default:
		}
		leaders <- now // this goroutine is the only one that writes: there is room
	}
}

// change waits until another than last leads. It is a wait like that for a lock: look, subscribe and have it confirmed,
// look again, and sleep until a message or PollCap.
func (e *Election) change(ctx context.Context, last Leader) (now Leader, err error) {
	err = e.c.queue.Wait(ctx, wait.Request{
		Name: e.name, Channel: e.announced, Place: wait.Alone,
		Try: func(ctx context.Context) (wait.Answer, error) {
			ctx, cancel := context.WithTimeout(ctx, e.c.session.Bound())
			defer cancel()
			now, err = e.look(ctx)
			return wait.Answer{Granted: err == nil && now != last, Left: -1}, err
		},
	})
	return now, err
}
