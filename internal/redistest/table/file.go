package table

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// file is a table as it is written.
type file struct {
	head  []string // lines before the first row
	names []name
	keys  map[string]string // of scripts whose calls name none
	heard string
	rows  []row
}

// name stands for a value.
type name struct{ short, long string }

type row struct {
	comments []string
	name     string
	listen   string
	own      bool // listen is the row's own, and not the table's
	before   state
	steps    []step
}

// step is a call that is made twice, or a command.
type step struct {
	call, command string
	once          bool // the call is made once
	runs          [2]outcome
}

// outcome is what a run of a call does.
type outcome struct {
	reply   string
	changed state
	told    []string
}

// state is what a server has: key -> type, end and fields.
type state map[string]string

const removed = "gone"

func (s state) keys() []string { return slices.Sorted(maps.Keys(s)) }

// with is the state after changes.
func (s state) with(changed state) state {
	all := maps.Clone(s)
	maps.Copy(all, changed)
	maps.DeleteFunc(all, func(_, text string) bool { return text == removed })
	return all
}

// changes lead from s to the state now.
func (s state) changes(now state) state {
	changed := state{}
	for key, text := range now {
		if s[key] != text {
			changed[key] = text
		}
	}
	for key := range s {
		if _, ok := now[key]; !ok {
			changed[key] = removed
		}
	}
	return changed
}

// parse reads a table.
func parse(t *testing.T, text string) *file {
	t.Helper()
	f := &file{keys: map[string]string{}}
	var listen string
	var comments []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		if word == "==" {
			f.rows = append(f.rows, row{comments: comments, name: rest, listen: listen, before: state{}})
			comments = nil
			continue
		}
		if word == "#" && len(f.rows) > 0 || line == "" {
			if line != "" {
				comments = append(comments, line)
			}
			continue
		}
		if len(f.rows) > 0 {
			f.rows[len(f.rows)-1].add(t, word, rest)
			continue
		}
		f.head = append(f.head, line)
		switch word {
		case "let":
			short, long, ok := strings.Cut(rest, " = ")
			require.True(t, ok, line)
			if quoted, err := strconv.Unquote(long); err == nil {
				long = quoted
			}
			f.names = append(f.names, name{short: short, long: f.value(long)})
			slices.SortFunc(f.names, func(a, b name) int { return len(b.short) - len(a.short) })
		case "keys":
			script, keys, _ := strings.Cut(rest, " ")
			f.keys[script] = keys
		case "hear":
			f.heard = rest
		case "listen":
			listen = rest
		default:
			require.Equal(t, "#", word, line)
		}
	}
	return f
}

// add reads a line of a row.
func (r *row) add(t *testing.T, word, rest string) {
	t.Helper()
	if word == "listen" {
		r.listen, r.own = rest, true
		return
	}
	if word == ">" || word == ">>" || word == "$" {
		s := step{once: word == ">>", runs: [2]outcome{{changed: state{}}, {changed: state{}}}}
		if word == "$" {
			s.command = rest
		} else {
			s.call = rest
		}
		r.steps = append(r.steps, s)
		return
	}
	if len(r.steps) == 0 {
		require.NotContains(t, r.before, word, r.name)
		r.before[word] = rest
		return
	}
	s := &r.steps[len(r.steps)-1]
	run := &s.runs[min(len(s.runs[1].reply), 1)]
	switch word {
	case "<":
		run.reply = rest
	case "again":
		s.runs[1].reply = s.runs[0].reply
		if reply, ok := strings.CutPrefix(rest, "< "); ok {
			s.runs[1].reply = reply
		}
	case "!":
		run.told = append(run.told, rest)
	default:
		run.changed[word] = rest
	}
}

// render is a row as it is written.
func (f *file) render(r row) string {
	lines := append(slices.Clone(r.comments), "== "+r.name)
	if r.own {
		lines = append(lines, strings.TrimSpace("listen "+r.listen))
	}
	add := func(s state) {
		for _, key := range s.keys() {
			lines = append(lines, key+" "+s[key])
		}
	}
	add(r.before)
	for _, s := range r.steps {
		if s.command != "" {
			lines = append(lines, "$ "+s.command)
			continue
		}
		mark := "> "
		if s.once {
			mark = ">> "
		}
		lines = append(lines, mark+s.call)
		first, second := s.runs[0], s.runs[1]
		for n, run := range s.runs {
			switch {
			case n == 0:
				lines = append(lines, "< "+run.reply)
			case second.reply != "" && second.reply != first.reply:
				lines = append(lines, "again < "+run.reply)
			case len(second.changed)+len(second.told) > 0:
				lines = append(lines, "again")
			default:
				continue
			}
			add(run.changed)
			for _, m := range run.told {
				lines = append(lines, "! "+m)
			}
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func (f *file) String() string {
	text := strings.Join(f.head, "\n") + "\n"
	for _, r := range f.rows {
		text += "\n" + f.render(r)
	}
	return text
}
