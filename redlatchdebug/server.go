package redlatchdebug

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

const (
	mostAsked = 16 // objects
	mostNamed = 20 // holders, and waiters, of one object
)

// answer is the server's view of the objects that the page shows.
type answer struct {
	Answered bool      `json:"answered"`
	Asked    int       `json:"asked"`
	Error    string    `json:"error,omitempty"`
	Took     millis    `json:"took_ms"`
	Objects  []*object `json:"objects"`
	Omitted  int       `json:"omitted"`
}

// object is a lock, semaphore, latch, barrier or limit on the server.
type object struct {
	Client   string       `json:"client"`
	Kind     string       `json:"kind"`
	Name     string       `json:"name"`
	Key      string       `json:"key,omitempty"` // of a limit
	Error    string       `json:"error,omitempty"`
	Held     bool         `json:"held"`
	Left     *millis      `json:"lease_left_ms"`
	Capacity *int64       `json:"capacity"`
	Free     *int64       `json:"free"`
	Holders  list[person] `json:"holders"`
	Waiters  list[person] `json:"waiters"`

	// Known is false for objects without known holders, Queues for objects without a known queue.
	Known, Queues bool `json:"-"`

	of   *client
	look func(ctx context.Context, o *object) error
}

// person is a holder or a waiter.
type person struct {
	Owner   string  `json:"owner"`
	Label   string  `json:"label,omitempty"`
	Process string  `json:"process,omitempty"`
	Here    bool    `json:"here"`
	Left    *millis `json:"lease_left_ms,omitempty"`
	Waiting *millis `json:"waiting_ms,omitempty"`
	Count   int64   `json:"count,omitempty"`
	Write   bool    `json:"write,omitempty"`
}

// inspected is a lock of any kind.
type inspected interface {
	Kind() string
	Inspect(ctx context.Context) (rlock.State, error)
}

// object returns the object that a hold or a waiting call is for.
func (c *client) object(of any, name string) *object {
	o := &object{Client: c.name, Kind: "?", Name: name, of: c, Holders: list[person]{Shown: []person{}},
		Waiters: list[person]{Shown: []person{}}}
	if x, ok := of.(interface{ Object() any }); ok {
		of = x.Object()
	}
	switch x := of.(type) {
	case inspected:
		o.Kind, o.look = x.Kind(), looked(x.Inspect, (*object).lock)
	case interface { // a semaphore
		Kind() string
		Inspect(ctx context.Context) (rsemaphore.SemaphoreState, error)
	}:
		o.Kind, o.look = x.Kind(), looked(x.Inspect, (*object).semaphore)
	case *counting.Semaphore:
		o.Kind, o.look = "CountingSemaphore", looked(x.Inspect, (*object).counting)
	case *rsemaphore.CountDownLatch:
		o.Kind, o.look = "CountDownLatch", looked(x.Inspect, (*object).latch)
	case *rsemaphore.CyclicBarrier:
		o.Kind, o.look = "CyclicBarrier", looked(x.Inspect, (*object).barrier)
	}
	return o
}

// limit returns the object of a limit that refused a request.
func (c *client) limit(r accessor.Refused) *object {
	o := &object{Client: c.name, Kind: r.Algorithm, Name: r.Name, Key: r.Key, of: c,
		Holders: list[person]{Shown: []person{}}, Waiters: list[person]{Shown: []person{}}}
	o.look = func(ctx context.Context, o *object) error {
		a, err := r.Limiter.(*ratelimit.Limiter).Peek(ctx, r.Key)
		if err == nil {
			o.room(r.Burst, a.Remaining)
			o.Left = left(a.ResetAfter)
		}
		return err
	}
	return o
}

// looked returns a func that calls inspect, and has take copy the result into the object.
func looked[S any](inspect func(context.Context) (S, error),
	take func(*object, S)) func(context.Context, *object) error {
	return func(ctx context.Context, o *object) error {
		s, err := inspect(ctx)
		if err == nil {
			take(o, s)
		}
		return err
	}
}

// ask asks the server about the first of the objects that the page shows, all at the same time, and for one CallTimeout
// in all. A server that does not answer must not keep the page back, because people open the page when a server fails.
func (p *page) ask(ctx context.Context, clients []*client, shown []*object) {
	if !p.Ask || p.Closed {
		return
	}
	p.Server = &answer{Objects: []*object{}}
	seen := map[string]bool{}
	for _, o := range shown {
		k := o.Client + " " + o.Kind + " " + o.Name + " " + o.Key
		if o.look == nil || seen[k] {
			continue
		}
		if seen[k] = true; len(p.Server.Objects) == mostAsked {
			p.Server.Omitted++
			continue
		}
		p.Server.Objects = append(p.Server.Objects, o)
	}
	p.Server.Asked = len(p.Server.Objects)
	ctx, cancel := context.WithTimeout(ctx, clients[0].CallTimeout)
	defer cancel()
	began, failures := time.Now(), make([]error, p.Server.Asked)
	var all sync.WaitGroup
	for i, o := range p.Server.Objects {
		all.Go(func() { failures[i] = o.look(ctx, o) })
	}
	all.Wait()
	p.Server.Took = since(began)
	for i, err := range failures {
		p.Server.Objects[i].Error = masked(err)
		switch {
		case !errors.Is(err, redlatch.ErrUnavailable) && !errors.Is(err, redlatch.ErrUnknownOutcome):
			p.Server.Answered = true
		case p.Server.Error == "":
			p.Server.Error = masked(err)
		}
	}
}

func (o *object) lock(s rlock.State) {
	o.Held, o.Left, o.Known, o.Queues = s.Locked, left(s.Lease), true, true
	for _, h := range s.Holders {
		o.holder(h)
	}
	for _, w := range s.Waiters {
		x := person{Owner: short(string(w.Owner)), Label: w.Owner.Label(), Process: w.Process, Here: o.here(string(w.Owner)),
			Write: w.Write}
		if w.Waiting > 0 {
			x.Waiting = some(millis(w.Waiting))
		}
		o.Waiters.add(x, mostNamed)
	}
	for _, m := range s.Members { // of a Multi or Quorum; a held member also has a row of its own
		o.Holders.add(person{Owner: m.Name, Left: left(m.Lease), Count: int64(len(m.Holders))}, mostNamed)
	}
}

func (o *object) semaphore(s rsemaphore.SemaphoreState) {
	o.room(int64(s.Capacity), int64(s.Available))
	o.Known = true
	for _, h := range s.Permits {
		o.holder(h)
	}
}

func (o *object) counting(s counting.State) {
	free := int64(s.Available)
	o.Free, o.Left = &free, left(s.TTL)
}

func (o *object) latch(s rsemaphore.LatchState) {
	o.Held, o.Capacity, o.Left = s.Count > 0, &s.Count, left(s.TTL)
}

func (o *object) barrier(s rsemaphore.BarrierState) {
	o.room(int64(s.Parties), int64(s.Parties-s.Waiting))
}

func (o *object) room(capacity, free int64) {
	o.Held, o.Capacity, o.Free = free < capacity, &capacity, &free
}

func (o *object) holder(h redlatch.Holder) {
	o.Holders.add(person{Owner: short(h.ID), Label: h.Label, Process: h.Process, Here: o.here(h.Client),
		Left: left(h.Lease), Count: int64(h.N), Write: h.Write}, mostNamed)
}

// here reports whether an owner, or the beginning of the id of a client, is of this process.
func (o *object) here(owner string) bool {
	id, _, _ := strings.Cut(owner, ":")
	return id != "" && o.of.keeper != nil && strings.HasPrefix(o.of.keeper.ID, id)
}

// add counts x, and shows it if fewer than most are shown.
func (l *list[T]) add(x T, most int) {
	if l.Total++; len(l.Shown) < most {
		l.Shown = append(l.Shown, x)
	}
}

// left returns the rest of a lease, or nil if the lease has no end.
func left(d time.Duration) *millis {
	if d < 0 {
		return nil
	}
	return some(millis(d))
}

// Room returns a text with the object's capacity and the free part of it.
func (o *object) Room() string {
	switch {
	case o.Kind == "CyclicBarrier" && o.Free != nil:
		return fmt.Sprintf("%d of %d have arrived", *o.Capacity-*o.Free, *o.Capacity)
	case o.of != nil && o.of.limits != nil && o.Free != nil:
		return fmt.Sprintf("%d of %d remaining, full again in %v", *o.Free, *o.Capacity, *o.Left)
	case o.Capacity != nil && o.Free != nil:
		return fmt.Sprintf("%d of %d free", *o.Free, *o.Capacity)
	case o.Free != nil:
		return fmt.Sprintf("%d free", *o.Free)
	case o.Capacity != nil:
		return fmt.Sprintf("%d left to count down", *o.Capacity)
	}
	return ""
}
