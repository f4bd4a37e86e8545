package main

import (
	"fmt"
	"strings"
)

// table is the result of a run.
type table struct {
	planted, random               []fault
	plantedNoticed, randomNoticed map[string]verdict
	cover                         *coverMap
}

func noticed(faults []fault, verdicts map[string]verdict, is func(fault) bool) string {
	if verdicts == nil {
		return "-"
	}
	all, some := 0, 0
	for _, f := range faults {
		if v, ran := verdicts[f.name]; ran && is(f) {
			all++
			if v.Noticed {
				some++
			}
		}
	}
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", some, all)
}

// String is the table in Markdown.
func (t *table) String() string {
	var b strings.Builder
	b.WriteString("| area | planted faults noticed | random faults in Go | random faults in Lua | Go cover | " +
		"Lua cover |\n|---|--:|--:|--:|--:|--:|\n")
	for _, of := range append(areas, "others") {
		in := func(lua bool) func(fault) bool {
			return func(f fault) bool { return area(f.file) == of && f.isLua() == lua }
		}
		cover := func(lua bool) string {
			if t.cover == nil || of == "others" {
				return "-"
			}
			return fmt.Sprintf("%.1f %%", t.cover.share(of, lua))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", of,
			noticed(t.planted, t.plantedNoticed, func(f fault) bool { return area(f.file) == of }),
			noticed(t.random, t.randomNoticed, in(false)), noticed(t.random, t.randomNoticed, in(true)), cover(false),
			cover(true))
	}
	return b.String()
}

// survivors counts the planted faults that no test noticed.
func (t *table) survivors() (n int) {
	for _, f := range t.planted {
		if v, ran := t.plantedNoticed[f.name]; ran && !v.Noticed {
			n++
		}
	}
	return n
}

// page is the file measure.md: the table, and the faults that no test noticed.
func (t *table) page() string {
	var b strings.Builder
	b.WriteString("# How much of the library its tests judge\n\n" +
		"Written by `go -C proof run ./faults -write`; its doc comment explains the columns. A change of the tests may\n" +
		"not make a column worse.\n\n" + t.String() + "\n## Faults that no test notices\n\n")
	for _, f := range append(t.planted, t.random...) {
		v, ran := t.plantedNoticed[f.name]
		if !ran {
			v, ran = t.randomNoticed[f.name]
		}
		if ran && !v.Noticed {
			fmt.Fprintf(&b, "- `%s`", f.name)
			if v.Why != "" {
				fmt.Fprintf(&b, " (%s)", v.Why)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// markdown lists planted faults.
func markdown(faults []fault) string {
	var b strings.Builder
	b.WriteString("| fault | in | the promise that it breaks | noticed by |\n|---|---|---|---|\n")
	for _, f := range faults {
		fmt.Fprintf(&b, "| %s | `%s` | %s | `%s` in `%s` |\n", f.name, f.file, f.breaks, strings.Join(f.tests, "`, `"), f.pkg)
	}
	return b.String()
}
