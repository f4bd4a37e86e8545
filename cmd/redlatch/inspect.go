//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rlock"
)

// status is what inspect tells of a name.
type status struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"` // lock, semaphore, once or limit
	Held      bool     `json:"held"`
	Mode      string   `json:"mode,omitempty"`     // read or write
	LeaseMS   *int64   `json:"lease_ms,omitempty"` // of a lock; -1: no end
	Token     int64    `json:"token,omitempty"`
	Capacity  int      `json:"capacity,omitempty"`
	Available *int     `json:"available,omitempty"`
	Holders   []holder `json:"holders"`
	Waiters   []holder `json:"waiters,omitempty"`
	Tenants   []tenant `json:"tenants,omitempty"` // of a semaphore, by name
	// Of a once with an answer: its length, how long it is fresh, and how long it is kept; -1: without an end.
	AnswerBytes *int64 `json:"answer_bytes,omitempty"`
	FreshMS     *int64 `json:"fresh_ms,omitempty"`
	LeftMS      *int64 `json:"left_ms,omitempty"`
}

// tenant is a tenant that shares a semaphore with others.
type tenant struct {
	Name    string `json:"name"`
	Held    int    `json:"held"`
	Waiting int    `json:"waiting"`
}

// holder is a holder or a waiter.
type holder struct {
	Who       string `json:"who"` // its label, its process, or its owner
	Label     string `json:"label,omitempty"`
	Process   string `json:"process,omitempty"`
	Owner     string `json:"owner,omitempty"`
	Count     int    `json:"count,omitempty"`
	LeaseMS   *int64 `json:"lease_ms,omitempty"`   // of a holder; -1: no end
	WaitingMS *int64 `json:"waiting_ms,omitempty"` // of a waiter
	Write     bool   `json:"write,omitempty"`
}

// named is h with the name for people; client is another, of a holder without label and process.
func (h holder) named(client string) holder {
	h.Who = cmp.Or(h.Label, h.Process, client, h.Owner, "a client")
	return h
}

// look asks for one name.
func look(ctx context.Context, red *redlatch.Client, prefix, name string) (status, error) {
	c := red.Hub().Client()
	there, err := c.Do(ctx, c.B().Exists().Key(keyname.Suffix(keyname.Own(prefix+name), "timeout")).Build()).AsInt64()
	if err == nil && there > 0 {
		return lookAtSemaphore(ctx, red, name)
	}
	if isOnce(ctx, red, prefix+name) {
		return lookAtOnce(ctx, red, name)
	}
	s := status{Name: name, Kind: "lock", Holders: []holder{}}
	state, err := red.Locks().Reentrant(name).Inspect(ctx)
	if err != nil {
		return s, fmt.Errorf("%q: %w", name, err)
	}
	s.ofLock(state)
	if !s.Held {
		if limit, err := isLimit(ctx, c, prefix+name); err == nil && limit { // a user of locks may not ask that
			s.Kind = "limit"
		}
	}
	return s, nil
}

// ofLock is what inspect tells of a lock.
func (s *status) ofLock(state rlock.State) {
	s.Held, s.Mode, s.Token = state.Locked, state.Mode, state.Token
	if s.Held {
		s.LeaseMS = millis(state.Lease)
	}
	for _, h := range state.Holders {
		x := holder{Label: h.Label, Process: h.Process, Owner: h.ID, Count: h.N,
			LeaseMS: millis(h.Lease), Write: h.Write}
		s.Holders = append(s.Holders, x.named(""))
	}
	for _, w := range state.Waiters {
		x := holder{Label: w.Owner.Label(), Process: w.Process, Owner: string(w.Owner), WaitingMS: millis(w.Waiting),
			Write: w.Write}
		s.Waiters = append(s.Waiters, x.named(""))
	}
}

func lookAtSemaphore(ctx context.Context, red *redlatch.Client, name string) (status, error) {
	s := status{Name: name, Kind: "semaphore", Holders: []holder{}}
	state, err := red.Semaphores().Semaphore(name, 1).Inspect(ctx)
	if err != nil {
		return s, fmt.Errorf("%q: %w", name, err)
	}
	s.Capacity, s.Available, s.Held = state.Capacity, &state.Available, len(state.Permits) > 0
	for _, h := range state.Permits {
		x := holder{Label: h.Label, Process: h.Process, Owner: h.ID, LeaseMS: millis(h.Lease)}
		s.Holders = append(s.Holders, x.named(h.Client))
	}
	for _, name := range slices.Sorted(maps.Keys(state.Tenants)) {
		has := state.Tenants[name]
		s.Tenants = append(s.Tenants, tenant{Name: name, Held: has.Held, Waiting: has.Waiting})
	}
	return s, nil
}

func (t *tool) inspect() *cobra.Command {
	var asJSON bool
	var v view
	var every time.Duration
	s := search{tool: t}
	c := &cobra.Command{
		Use:   "inspect [name...]",
		Short: "show who holds and who waits",
		Args:  names(cobra.ArbitraryArgs, t.lockName), ValidArgsFunction: t.offer(1000, noFiles),
		RunE: func(c *cobra.Command, names []string) error {
			if len(names) > 0 && c.Flags().Changed("match") {
				return usage("--match %q works only without names", s.match)
			}
			return t.with(c, func(ctx context.Context, red *redlatch.Client) error {
				if every > 0 {
					return s.watch(ctx, red, names, every, v)
				}
				all, rows, err := s.show(ctx, red, names, v)
				if err != nil {
					return err
				}
				if asJSON {
					return t.json(all)
				}
				return table(t.out, rows)
			})
		},
	}
	s.flags(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON: an array with an object for each name")
	c.Flags().BoolVar(&v.wide, "wide", false, "also show the owners on the server")
	c.Flags().BoolVar(&v.blocking, "blocking", false, "show who keeps how many waiting, and for how long")
	c.Flags().Var(within(&every, 100*time.Millisecond, century), "watch",
		"repeat after this `time`, until ctrl-c")
	c.Flags().Lookup("watch").NoOptDefVal = "1s"
	c.MarkFlagsMutuallyExclusive("watch", "json")
	c.MarkFlagsMutuallyExclusive("blocking", "wide")
	return c
}

// view is what inspect shows of the names.
type view struct{ wide, blocking bool }

// show returns what JSON and tables have of the names.
func (s *search) show(ctx context.Context, red *redlatch.Client, names []string, v view) (any, []row, error) {
	if v.blocking {
		all, err := s.blocking(ctx, red, names)
		return all, blockerRows(all), err
	}
	all, err := s.statuses(ctx, red, names)
	return all, statusRows(all, v.wide), err
}

// watch writes a table again and again, each over the last one if that is on a terminal, until ctx ends. A server that
// gives no answer is asked again.
func (s *search) watch(ctx context.Context, red *redlatch.Client, names []string, every time.Duration,
	v view) error {
	before := ""
	if f, ok := s.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		before = "\x1b[H\x1b[J" // the upper left corner, and nothing below
	}
	for {
		_, rows, err := s.show(ctx, red, names, v)
		switch {
		case ctx.Err() != nil:
			return nil
		case exitCode(err) == exitServer:
			s.say("%v; asking again", err)
		case err != nil:
			return err
		default:
			fmt.Fprintf(s.out, "%s%s\n", before, time.Now().Format(time.TimeOnly))
			if err := table(s.out, rows); err != nil {
				return err
			}
		}
		if !script.Pause(ctx, every) {
			return nil
		}
	}
}

// statuses are those of the names, or without any of all that is found held.
func (s *search) statuses(ctx context.Context, red *redlatch.Client, names []string) (all []status, err error) {
	searched := len(names) == 0
	if searched {
		if names, err = s.names(ctx, red.Hub().Client()); err != nil {
			return nil, err
		}
	}
	all = []status{} // a name that a search found may be another program's, or free by now
	for _, name := range names {
		x, err := look(ctx, red, s.server.prefix, name)
		switch {
		case searched && (errors.Is(err, redlatch.ErrWrongType) || errors.Is(err, redlatch.ErrInvalidName)):
			continue
		case err != nil:
			return nil, err
		case searched && !x.Held:
			continue
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

// millis is a duration for JSON; -1 stands for no end.
func millis(d time.Duration) *int64 {
	ms := d.Milliseconds()
	if d < 0 {
		ms = -1
	}
	return &ms
}

// brief is a duration for people.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "no end"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func briefMillis(ms *int64) string {
	if ms == nil {
		return ""
	}
	return brief(time.Duration(*ms) * time.Millisecond)
}

// printable is a text from a server, fit for a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// row is a line of a table.
type row []any

// table writes rows in columns, fit for a terminal.
func table(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		line := ""
		for _, cell := range r {
			line += printable(fmt.Sprint(cell)) + "\t"
		}
		fmt.Fprintln(w, strings.TrimRight(line, "\t"))
	}
	return w.Flush()
}

// statusRows has a row for each holder and waiter. The last column is for wide tables.
func statusRows(all []status, wide bool) []row {
	rows := []row{{"NAME", "KIND", "STATE", "WHO", "LEASE", "WAITS", "OWNER"}}
	for _, s := range all {
		kind, free := s.Kind, ""
		if s.Available != nil {
			free = fmt.Sprintf(", %d of %d free", *s.Available, s.Capacity)
		} else if s.Mode != "" {
			kind = "lock, " + s.Mode
		}
		switch {
		case s.Kind == "limit": // a limit has no holder; redlatch limit shows its state
			rows = append(rows, row{s.Name, kind})
		case s.AnswerBytes != nil:
			rows = append(rows, row{s.Name, kind, fmt.Sprintf("%d bytes, fresh for %s, kept for %s", *s.AnswerBytes,
				briefMillis(s.FreshMS), briefMillis(s.LeftMS))})
		case len(s.Holders) == 0:
			rows = append(rows, row{s.Name, kind, "free" + free})
		}
		for _, h := range s.Holders {
			who := h.Who
			if h.Count > 1 {
				who += fmt.Sprintf(" (%d times)", h.Count)
			}
			rows = append(rows, row{s.Name, kind, "held" + free, who, briefMillis(h.LeaseMS), "", h.Owner})
		}
		for _, h := range s.Waiters {
			rows = append(rows, row{s.Name, kind, "waits", h.Who, "", briefMillis(h.WaitingMS), h.Owner})
		}
		for _, t := range s.Tenants {
			state := fmt.Sprintf("tenant: %d held, %d wait", t.Held, t.Waiting)
			rows = append(rows, row{s.Name, kind, state, t.Name})
		}
	}
	for i, r := range rows {
		if len(r) == 7 && !wide {
			rows[i] = r[:6]
		}
	}
	return rows
}
