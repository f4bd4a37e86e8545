package cells

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// op is an operation of a history as Knossos reads it, for its model of a mutex.
type op struct {
	process int
	typ, f  string
	at      int64
	value   string // an event's id
}

func (o op) String() string {
	return fmt.Sprintf("{:process %d, :type :%s, :f :%s, :value nil, :time %d, :hold %q}", o.process, o.typ, o.f, o.at,
		o.value)
}

// ops are the history for a mutex that knows of no leases. A hold that its library reports as lost, or whose client is
// killed, is released at some time after its holder last acted: by a call without an answer. One that is released is
// released by that call, whatever it says. A process has one call at a time, and none after one without an answer, as
// Knossos has it.
func (h record) ops() (list []op) {
	left := map[string]event{}
	for _, e := range h.events {
		if e.Do == "look" || e.Do == "leave" {
			left[e.ID] = e
		}
	}
	var turns []ednTurn
	for _, e := range h.all("take") {
		turns = append(turns, turnOf(e, left[e.ID]))
	}
	slices.SortStableFunc(turns, func(a, b ednTurn) int { return cmp.Compare(a.calls[0].from, b.calls[0].from) })
	var free []int64 // from when on a process has no turn; -1: never again
	for _, t := range turns {
		p := slices.IndexFunc(free, func(from int64) bool { return from >= 0 && from < t.calls[0].from })
		if p < 0 {
			p = len(free)
			free = append(free, 0)
		}
		for _, c := range t.calls {
			list = append(list, op{p, "invoke", c.f, c.from, t.id}, op{p, c.typ, c.f, c.to, t.id})
			if free[p] = c.to; c.typ == "info" {
				free[p] = -1
			}
		}
	}
	slices.SortStableFunc(list, func(a, b op) int { return cmp.Compare(a.at, b.at) })
	return list
}

type ednCall struct {
	f, typ   string
	from, to int64
}

// ednTurn is a call that acquires, and the one that releases, if there was something to release.
type ednTurn struct {
	id    string
	calls []ednCall
}

// turnOf is the turn that e began, whose holder last did l.
func turnOf(e, l event) ednTurn {
	t := ednTurn{id: e.ID}
	add := func(f, typ string, from, to int64) { t.calls = append(t.calls, ednCall{f, typ, from, to}) }
	switch e.Out {
	case "ok":
		add("acquire", "ok", e.Call, e.Return)
		if l.Do == "leave" && l.Out == "ok" {
			add("release", "ok", l.Call, l.Return)
		} else {
			add("release", "info", max(l.To, e.Return)+1, max(l.To, l.Return, e.Return)+2)
		}
	case "not_acquired":
		add("acquire", "fail", e.Call, e.Return)
	default:
		add("acquire", "info", e.Call, e.Return)
	}
	return t
}

// writeEDN writes the history of a round into a file of a directory, one operation a line.
func writeEDN(dir string, r round, h record) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, r.Library+"-"+hyphened(r.Fault)+".edn"))
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	printOps(w, h.ops())
	return w.Flush()
}

func printOps(w io.Writer, list []op) {
	for i, o := range list {
		fmt.Fprintf(w, "%s\n", strings.Replace(o.String(), "{", fmt.Sprintf("{:index %d, ", i), 1))
	}
}

func hyphened(name string) string { return strings.ReplaceAll(name, " ", "-") }
