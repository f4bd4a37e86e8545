package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// A CountingSemaphore has no leases: what a client that is killed had is gone. So there is a new one every
// countingRound.
const (
	countingRound  = 2 * time.Second
	countingRounds = 300
	countingReuse  = 32 // of a soak
)

func countingName(round int64) string { return fmt.Sprint("counting-", round) }

// takeCounted takes permits of the round's semaphore and gives them back. V is the round.
func takeCounted(ctx context.Context, c *client, rnd *rand.Rand) {
	e := event{Of: "counting", ID: c.next(), N: 1 + rnd.Int64N(permits), V: (now() - c.Began) / int64(countingRound)}
	round, ttl := e.V, 20*time.Minute
	// The permits outlive their holders by half a minute, and are gone half a minute before the name comes again: a busy
	// machine takes several seconds for a turn, and the time begins when the server has set them.
	if c.Soak {
		round, ttl = e.V%countingReuse, countingReuse/2*countingRound
	}
	s := counting.New(c.red[0].Semaphores(), countingName(round))
	e.Do, e.Call = "set", now()
	_, err := s.TrySetPermits(ctx, permits, ttl)
	e.Return, e.Out = now(), reason(err)
	if err != nil { // whether it was set is seen when it is used
		c.say(e)
		return
	}
	e.Do, e.Call = "take", now()
	err = s.TryAcquire(ctx, int(e.N), time.Duration(rnd.IntN(600))*time.Millisecond)
	e.Return, e.Out, e.To = now(), reason(err), 1<<62
	c.say(e)
	if err != nil {
		return
	}
	rest(ctx, time.Duration(rnd.IntN(12))*time.Millisecond)
	e.Do, e.Call = "leave", now()
	e.To = e.Call
	c.stop(e)
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*callTimeout)
	defer cancel()
	err = s.Release(ended, int(e.N))
	if c.Break == "twice" {
		_ = s.Release(ended, int(e.N))
	}
	e.Return, e.Out = now(), reason(err)
	c.say(e)
}

// countingFinal reads what is free in each round that there still is.
func countingFinal(ctx context.Context, red *redlatch.Client, _ func(event)) (map[string]int64, error) {
	free := map[string]int64{}
	for n := range int64(countingRounds) {
		s, err := counting.New(red.Semaphores(), countingName(n)).Inspect(ctx)
		if err != nil {
			return nil, err
		}
		if s.TTL > 0 {
			free[countingName(n)] = int64(s.Available)
		}
	}
	return free, nil
}

// anonymous: in no round more permits are in use, or left, than there are.
func anonymous(h record, v *verdict) {
	rounds := map[int64]*record{}
	for _, e := range h.events {
		if rounds[e.V] == nil {
			rounds[e.V] = &record{ended: h.ended}
		}
		rounds[e.V].events = append(rounds[e.V].events, e)
	}
	for n, r := range rounds {
		v.capacity(*r, permits)
		free, ok := h.final[countingName(n)]
		if !ok {
			continue
		}
		if free > permits {
			v.wrong("round %d: %d permits are free, of %d", n, free, permits)
		}
	}
}

// elect campaigns, leads for some time and resigns; or looks who leads.
func elect(ctx context.Context, c *client, rnd *rand.Rand) {
	x := c.red[0].Elections().Election("election")
	if rnd.IntN(4) == 0 {
		e := event{Of: "election", Do: "look", Call: now()}
		l, err := x.Leader(ctx)
		e.Return, e.Out, e.ID, e.V = now(), reason(err), l.Value, l.Token
		c.say(e)
		return
	}
	value := ""
	c.use(ctx, "election", 1, rnd, func(ctx context.Context, wait, _ time.Duration) (holding, error) {
		value = c.next()
		c.try(event{Of: "election", ID: value})
		in, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		l, err := x.Campaign(in, value)
		if err != nil {
			return nil, err
		}
		c.say(event{Of: "election", Do: "lead", ID: value, V: l.Token()})
		return leading{l}, nil
	})
}

// leading is a leadership that is given back as locks are.
type leading struct{ *election.Leadership }

func (l leading) Release(ctx context.Context) error { return l.Resign(ctx) }

// elected: leaders exclude each other, as holders of a lock with tokens; who looks is shown a value with its own token,
// and none that resigned before.
func elected(h record, v *verdict) {
	v.exclusion(h)
	of, tried, resigned := map[int64]string{}, map[string]bool{}, map[int64]int64{}
	for _, e := range h.all("lead") {
		of[e.V] = e.ID
	}
	for _, e := range h.all("try") {
		tried[e.ID] = true
	}
	for _, e := range h.all("leave") {
		if e.Out == "ok" {
			resigned[e.V] = e.Return
		}
	}
	for _, e := range h.all("look") {
		if e.V == 0 {
			continue
		}
		if value, ok := of[e.V]; ok && value != e.ID || !tried[e.ID] {
			v.wrong("token %d was shown with %q, and is %q's", e.V, e.ID, value)
		}
		if at, ok := resigned[e.V]; ok && at < e.Call {
			v.wrong("%s with token %d was shown %s after it had resigned", e.ID, e.V, ms(e.Call-at))
		}
	}
}
