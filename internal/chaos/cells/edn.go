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
	type call struct {
		f, typ, id string
		from, to   int64
	}
	var calls []call
	for _, e := range h.all("take") {
		switch e.Out {
		case "ok":
			calls = append(calls, call{"acquire", "ok", e.ID, e.Call, e.Return})
			l := left[e.ID]
			if l.Do == "leave" && l.Out == "ok" {
				calls = append(calls, call{"release", "ok", e.ID, l.Call, l.Return})
			} else {
				calls = append(calls, call{"release", "info", e.ID, max(l.To, e.Return) + 1, max(l.To, l.Return, e.Return) + 2})
			}
		case "not_acquired":
			calls = append(calls, call{"acquire", "fail", e.ID, e.Call, e.Return})
		default:
			calls = append(calls, call{"acquire", "info", e.ID, e.Call, e.Return})
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.from, b.from) })
	var free []int64 // from when on a process has no call
	for _, c := range calls {
		p := slices.IndexFunc(free, func(from int64) bool { return from >= 0 && from < c.from })
		if p < 0 {
			p = len(free)
			free = append(free, 0)
		}
		list = append(list, op{p, "invoke", c.f, c.from, c.id}, op{p, c.typ, c.f, c.to, c.id})
		if free[p] = c.to; c.typ == "info" {
			free[p] = -1
		}
	}
	slices.SortStableFunc(list, func(a, b op) int { return cmp.Compare(a.at, b.at) })
	return list
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
