//go:build unix

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wait"
)

// blocker is a holder that keeps others waiting.
type blocker struct {
	Who     string   `json:"who"` // its label, its process, or its owner
	Label   string   `json:"label,omitempty"`
	Process string   `json:"process,omitempty"`
	Waiters int      `json:"waiters"`              // in the queues of what it holds
	Longest *int64   `json:"longest_ms,omitempty"` // how long the first of them has waited; missing if that is not known
	Total   int64    `json:"total_ms"`             // how long they have waited together
	Names   []string `json:"names"`                // what it holds that others wait for
}

// blocking returns who keeps others waiting, by the names or without any by all that is found held: who keeps a waiter
// waiting for longest comes first. A holder of several names has one row. If a name has several holders, its waiters
// wait for each of them.
func (s *search) blocking(ctx context.Context, red *redlatch.Client, names []string) ([]blocker, error) {
	all, err := s.statuses(ctx, red, names)
	if err != nil {
		return nil, err
	}
	byWho := map[string]*blocker{}
	for _, status := range all {
		if status.Kind == "semaphore" {
			if status.Waiters, err = permitWaiters(ctx, red.Hub().Client(), s.server.prefix+status.Name); err != nil {
				return nil, err
			}
		}
		if len(status.Waiters) > 0 {
			block(byWho, status)
		}
	}
	rows := make([]blocker, 0, len(byWho))
	for _, b := range byWho {
		rows = append(rows, *b)
	}
	slices.SortFunc(rows, func(a, b blocker) int {
		return cmp.Or(cmp.Compare(b.longest(), a.longest()), cmp.Compare(b.Waiters, a.Waiters), cmp.Compare(a.Who, b.Who))
	})
	return rows, nil
}

// longest is Longest as a number; -1 if it is not known.
func (b *blocker) longest() int64 {
	if b.Longest == nil {
		return -1
	}
	return *b.Longest
}

// block adds the waiters of one name to its holders, each once.
func block(byWho map[string]*blocker, status status) {
	seen := map[string]bool{}
	for _, h := range status.Holders {
		if seen[h.Who] {
			continue
		}
		seen[h.Who] = true
		b := byWho[h.Who]
		if b == nil {
			b = &blocker{Who: h.Who, Label: h.Label, Process: h.Process}
			byWho[h.Who] = b
		}
		b.Names = append(b.Names, status.Name)
		b.Waiters += len(status.Waiters)
		for _, w := range status.Waiters {
			if w.WaitingMS != nil && *w.WaitingMS > 0 { // 0: Redisson's queue does not have it
				b.Total += *w.WaitingMS
				longest := max(b.longest(), *w.WaitingMS)
				b.Longest = &longest
			}
		}
	}
}

// mostWaiters is how many waiters for the permits of a semaphore are read.
const mostWaiters = 10_000

// permitWaiters returns the waiters for permits, of a Semaphore or a WeightedSemaphore.
func permitWaiters(ctx context.Context, c rueidis.Client, key string) (all []holder, err error) {
	queue := keyname.Prefix("redlatch_queue", key)
	for _, q := range []string{queue, queue + ":weighted"} {
		replies := c.DoMulti(ctx, c.B().Time().Build(), c.B().Arbitrary("ZRANGE").Keys(q).
			Args("0", "+inf", "BYSCORE", "LIMIT", "0", strconv.Itoa(mostWaiters), "WITHSCORES").Build())
		now, err := replies[0].AsIntSlice()
		if err != nil || len(now) != 2 {
			return nil, script.Explain("TIME", err)
		}
		entries, err := replies[1].AsZScores()
		if err != nil {
			return nil, script.Explain("ZRANGE", err)
		}
		for _, e := range entries {
			if _, ok := wait.ReadEntry(e.Member); ok {
				ms := max(1, now[0]*1000+now[1]/1000-int64(e.Score)/1000)
				all = append(all, holder{WaitingMS: &ms})
			}
		}
	}
	return all, nil
}

// namesShown is how many names a row for people has.
const namesShown = 3

// blockerRows has a row for each holder.
func blockerRows(all []blocker) []row {
	rows := []row{{"WHO", "WAITERS", "LONGEST", "TOTAL", "HOLDS"}}
	for _, b := range all {
		names, total := b.Names[:min(len(b.Names), namesShown)], ""
		if more := len(b.Names) - len(names); more > 0 {
			names = append(slices.Clone(names), fmt.Sprintf("%d more", more))
		}
		if b.Longest != nil {
			total = briefMillis(&b.Total)
		}
		rows = append(rows, row{b.Who, b.Waiters, briefMillis(b.Longest), total, strings.Join(names, ", ")})
	}
	return rows
}
