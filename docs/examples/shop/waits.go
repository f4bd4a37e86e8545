package main

import (
	"slices"
	"sync"
	"time"
)

// waits are the times that requests took, from the first try to the answer, by verb.
type waits struct {
	mu     sync.Mutex
	byVerb map[string]*wait
}

type wait struct {
	took  []time.Duration
	again int // requests that were sent more than once
}

// waitRow is what the report says of a verb.
type waitRow struct {
	Verb            string
	Requests, Again int
	Half, Most, Max time.Duration // of all answered so fast: half, 99 in a hundred, all
}

func newWaits() *waits { return &waits{byVerb: map[string]*wait{}} }

func (w *waits) add(verb string, took time.Duration, tries int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.byVerb[verb]
	if v == nil {
		v = &wait{}
		w.byVerb[verb] = v
	}
	v.took = append(v.took, took)
	if tries > 1 {
		v.again++
	}
}

// rows are the verbs that were used, in the given order.
func (w *waits) rows(verbs ...string) (rows []waitRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, verb := range verbs {
		v := w.byVerb[verb]
		if v == nil {
			continue
		}
		all := slices.Sorted(slices.Values(v.took))
		at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100] }
		rows = append(rows, waitRow{verb, len(all), v.again, at(50), at(99), at(100)})
	}
	return rows
}
