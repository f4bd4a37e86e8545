//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
)

const inspectHelp = `inspect shows who holds locks and semaphores, with what label and for how long yet, and who
waits. It changes nothing.

With names it asks for these: one or two calls each, with the rights that programs have. Without names it looks for
what is held, by SCAN over all keys: in pages of --count keys, at most --rate keys a second, and at most --max names.
That needs the right +scan, which programs do not need (redlatch acl --only inspect). --match bounds it by a glob
pattern of names; the server still goes over all its keys.

A hold without a label is shown by its process (host and pid, unless the program says otherwise; known from a second
after the program first held something), or by its owner on the server. Only waiters that queue on the server are
known: one for each process of a Reentrant lock. Waiters of a semaphore are not shown.`

const inspectExamples = `  redlatch inspect nightly-report
  redlatch inspect --match 'order:*' --json
  redlatch inspect nightly-report --json | jq '.[0].holders[0].lease_ms'`

// status is what inspect tells of a name.
type status struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"` // lock or semaphore
	Held      bool     `json:"held"`
	Mode      string   `json:"mode,omitempty"`     // read or write
	LeaseMS   *int64   `json:"lease_ms,omitempty"` // of a lock; -1: it has no end
	Token     int64    `json:"token,omitempty"`
	Capacity  int      `json:"capacity,omitempty"`
	Available *int     `json:"available,omitempty"`
	Holders   []holder `json:"holders"`
	Waiters   []holder `json:"waiters,omitempty"`
}

// holder is one that holds or waits.
type holder struct {
	Who       string `json:"who"` // its label, its process, or its owner
	Label     string `json:"label,omitempty"`
	Process   string `json:"process,omitempty"`
	Owner     string `json:"owner,omitempty"`
	Count     int    `json:"count,omitempty"`
	LeaseMS   *int64 `json:"lease_ms,omitempty"`   // of a holder; -1: it has no end
	WaitingMS *int64 `json:"waiting_ms,omitempty"` // of a waiter
	Write     bool   `json:"write,omitempty"`
}

// nameOf is how a holder is called for people.
func nameOf(label, process, owner string) string {
	return cmp.Or(label, process, owner, "a client")
}

// look asks for one name.
func look(ctx context.Context, red *redlatch.Client, prefix, name string) (status, error) {
	c := red.Hub().Client()
	there, err := c.Do(ctx, c.B().Exists().Key(keyname.Suffix(prefix+name, "timeout")).Build()).AsInt64()
	if err == nil && there > 0 {
		return lookAtSemaphore(ctx, red, name)
	}
	s := status{Name: name, Kind: "lock", Holders: []holder{}}
	state, err := red.Locks().Reentrant(name).Inspect(ctx)
	if err != nil {
		return s, fmt.Errorf("%q: %w", name, err)
	}
	s.Held, s.Mode, s.Token = state.Locked, state.Mode, state.Token
	if s.Held {
		s.LeaseMS = millis(state.Lease)
	}
	for _, h := range state.Holders {
		s.Holders = append(s.Holders, holder{
			Who: nameOf(h.Owner.Label(), h.Process, string(h.Owner)), Label: h.Owner.Label(), Process: h.Process,
			Owner: string(h.Owner),
			Count: h.Count, LeaseMS: millis(h.Lease), Write: h.Write,
		})
	}
	for _, w := range state.Waiters {
		s.Waiters = append(s.Waiters, holder{
			Who: nameOf(w.Owner.Label(), w.Process, string(w.Owner)), Label: w.Owner.Label(), Process: w.Process,
			Owner:     string(w.Owner),
			WaitingMS: millis(w.Waiting), Write: w.Write,
		})
	}
	return s, nil
}

func lookAtSemaphore(ctx context.Context, red *redlatch.Client, name string) (status, error) {
	s := status{Name: name, Kind: "semaphore", Holders: []holder{}}
	state, err := red.Semaphores().Semaphore(name, 1).Inspect(ctx)
	if err != nil {
		return s, fmt.Errorf("%q: %w", name, err)
	}
	s.Capacity, s.Available, s.Held = state.Capacity, &state.Available, len(state.Permits) > 0
	for _, h := range state.Permits {
		s.Holders = append(s.Holders,
			holder{Who: nameOf(h.Label, h.Process, nameOf(h.Client, "", h.ID)), Label: h.Label, Process: h.Process, Owner: h.ID,
				LeaseMS: millis(h.Lease)})
	}
	return s, nil
}

func (t *tool) inspect() *cobra.Command {
	var asJSON, wide bool
	s := search{tool: t}
	c := &cobra.Command{
		Use:     "inspect [name...]",
		Short:   "show who holds and who waits",
		Long:    inspectHelp + "\n\n" + exitHelp,
		Example: inspectExamples,
		RunE: func(c *cobra.Command, names []string) error {
			if err := s.check(names, c.Flags().Changed); err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			return t.server.with(ctx, func(red *redlatch.Client) error {
				all, err := s.statuses(ctx, red, names)
				if err != nil {
					return err
				}
				if asJSON {
					return t.json(all)
				}
				writeTable(t.out, all, wide)
				return nil
			})
		},
	}
	s.flags(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON: an array with an object for each name")
	c.Flags().BoolVar(&wide, "wide", false, "show the owners on the server, too")
	return c
}

// statuses are those of the names, or without any of all that is found held.
func (s *search) statuses(ctx context.Context, red *redlatch.Client, names []string) (all []status, err error) {
	searched := len(names) == 0
	if searched {
		if names, err = s.names(ctx, red.Hub().Client()); err != nil {
			return nil, err
		}
	}
	all = []status{}
	for _, name := range names {
		x, err := look(ctx, red, s.server.prefix, name)
		switch {
		case searched && (errors.Is(err, redlatch.ErrWrongType) || errors.Is(err, redlatch.ErrInvalidName)):
			continue // another program's
		case err != nil:
			return nil, err
		case searched && !x.Held:
			continue // it was free by then
		}
		all = append(all, x)
	}
	return all, nil
}

func (t *tool) json(v any) error {
	e := json.NewEncoder(t.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
