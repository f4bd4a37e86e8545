package cells

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// shortest is the patience of a caller that the oracle of idle times reckons with; those with less give up soon, in one
// of three ways.
const shortest = 300 * time.Millisecond

// impatient makes half of the calls give up after 0 to 5 ms, seldom after up to 50: by their waitTime, the deadline of
// their context, or its cancellation.
func impatient(ctx context.Context, rnd *rand.Rand,
	wait time.Duration) (context.Context, context.CancelFunc, time.Duration) {
	if rnd.IntN(2) == 0 {
		return ctx, func() {}, wait
	}
	brief := time.Duration(rnd.IntN(5000)) * time.Microsecond
	if rnd.IntN(5) == 0 {
		brief *= 10
	}
	switch rnd.IntN(3) {
	case 0:
		ctx, cancel := context.WithTimeout(ctx, brief)
		return ctx, cancel, shortest
	case 1:
		ctx, cancel := context.WithCancel(ctx)
		t := time.AfterFunc(brief, cancel)
		return ctx, func() { t.Stop(); cancel() }, shortest
	}
	return ctx, func() {}, brief
}

const (
	// measurable is the shortest span in which idle times are looked for. What a busy machine leaves of a shorter one,
	// just after the clients have connected, says nothing.
	measurable = time.Second
	// startUp is how long after its beginning a cell is not judged: its clients connect.
	startUp = time.Second
	// settling is what may be left of a fault: a lease, a call, and a poll.
	settling = lease + 2*callTimeout + pollCap
	// longestIdle is how long something may be free while a client waits for it and nothing is wrong. The machine may be
	// busy: see awake.
	longestIdle = 200 * time.Millisecond
	// awake is how much of the time between two events of all clients counts: in the rest the machine may have been busy
	// with others.
	awake = 10 * time.Millisecond
)

// span is a time in which nothing is wrong.
type span struct{ from, to int64 }

// idle is how long something was had by no client while one who was patient waited for it, at most, within a span.
// beats are the times at which any client said anything, in order: what counts of the time between two of them is
// awake.
func (h record) idle(beats []int64, calm span) (most time.Duration, who string) {
	uses := h.uses()
	released := map[string]int64{} // when a release was answered
	for _, e := range h.all("leave") {
		released[e.ID] = e.Return
	}
	for i := range uses {
		uses[i].to = max(uses[i].to, released[uses[i].id])
	}
	for _, e := range h.all("take") {
		if e.Patience < shortest {
			continue
		}
		free, end := max(e.Call, calm.from), min(e.Return, calm.to)
		for _, u := range uses {
			if u.from < end && u.from > free {
				most, who = longer(most, who, awakeIn(beats, free, u.from), e.ID)
			}
			if u.from < end {
				free = max(free, u.to)
			}
		}
		most, who = longer(most, who, awakeIn(beats, free, end), e.ID)
	}
	return most, who
}

func longer(a time.Duration, of string, b time.Duration, id string) (time.Duration, string) {
	if b > a {
		return b, id
	}
	return a, of
}

// awakeIn is how much counts of a time.
func awakeIn(beats []int64, from, to int64) (sum time.Duration) {
	if to <= from {
		return 0
	}
	i, _ := slices.BinarySearch(beats, from)
	last := from
	for ; i < len(beats) && beats[i] < to; i++ {
		sum += min(time.Duration(beats[i]-last), awake)
		last = beats[i]
	}
	return sum + min(time.Duration(to-last), awake)
}

// beatsOf are the times at which anything was said.
func beatsOf(events []event) (beats []int64) {
	for _, e := range events {
		beats = append(beats, cmp.Or(e.Return, e.Call))
	}
	slices.Sort(beats)
	return beats
}
