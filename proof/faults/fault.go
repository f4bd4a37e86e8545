package main

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// fault is a text that stands in a file of the library in place of another.
type fault struct {
	name     string
	file     string // from the root of the module
	old, new string // old stands in the file once
	breaks   string // the promise that a planted fault breaks; a random fault has none
	pkg      string // whose tests notice a planted fault
	tests    []string
}

// The faults are data: one file for each area, one paragraph for each fault.
//
//	fault: an acquire without a lease
//	file: rlock/lua/acquire.lua
//	breaks: no key is left without an end
//	tests: rlock: TestScripts_EachRow_DoesWhatItSays
//	-the text that the fault replaces, line by line
//	+and the text in its place
//
//go:embed planted random
var data embed.FS

// read returns the faults of a folder of data, by area in the order of their names.
func read(folder string) ([]fault, error) {
	files, err := data.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var all []fault
	for _, file := range files {
		text, err := data.ReadFile(path.Join(folder, file.Name()))
		if err != nil {
			return nil, err
		}
		faults, err := parseFaults(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", folder, file.Name(), err)
		}
		all = append(all, faults...)
	}
	return all, nil
}

func parseFaults(text string) ([]fault, error) {
	var all []fault
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var f fault
		var old, now []string
		for line := range strings.SplitSeq(paragraph, "\n") {
			key, value, _ := strings.Cut(line, ": ")
			switch {
			case strings.HasPrefix(line, "-"):
				old = append(old, line[1:])
			case strings.HasPrefix(line, "+"):
				now = append(now, line[1:])
			case key == "fault":
				f.name = value
			case key == "file":
				f.file = value
			case key == "breaks":
				f.breaks = value
			case key == "tests":
				pkg, tests, _ := strings.Cut(value, ": ")
				f.pkg, f.tests = pkg, strings.Fields(tests)
			default:
				return nil, fmt.Errorf("%q is no line of a fault", line)
			}
		}
		f.old, f.new = strings.Join(old, "\n"), strings.Join(now, "\n")
		if f.name == "" || f.file == "" || f.old == "" || f.old == f.new {
			return nil, fmt.Errorf("no fault, because its name, file or text is missing:\n%s", paragraph)
		}
		all = append(all, f)
	}
	return all, nil
}

// text writes a random fault as its paragraph.
func (f *fault) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "fault: %s\nfile: %s\n", f.name, f.file)
	for line := range strings.SplitSeq(f.old, "\n") {
		b.WriteString("-" + line + "\n")
	}
	if f.new != "" {
		for line := range strings.SplitSeq(f.new, "\n") {
			b.WriteString("+" + line + "\n")
		}
	}
	return b.String()
}

// plant returns the text of the file with the fault in it, and the lines of the file that the fault replaces.
func (f *fault) plant(root string) (text []byte, lines span, err error) {
	text, err = os.ReadFile(filepath.Join(root, f.file))
	if err != nil {
		return nil, span{}, fmt.Errorf("%s: %w", f.name, err)
	}
	if n := bytes.Count(text, []byte(f.old)); n != 1 {
		return nil, span{}, fmt.Errorf("%s: its text stands in %s %d times, and must stand there once:\n%s", f.name, f.file,
			n, f.old)
	}
	at := bytes.Index(text, []byte(f.old))
	lines.from = 1 + bytes.Count(text[:at], []byte("\n"))
	lines.to = lines.from + strings.Count(f.old, "\n")
	return bytes.Replace(text, []byte(f.old), []byte(f.new), 1), lines, nil
}

func (f *fault) isLua() bool { return strings.HasSuffix(f.file, ".lua") }

// areas are the parts of the library that the table has a row for.
var areas = []string{"rlock", "rsemaphore", "rcounter", "internal"}

// area returns the row of a file.
func area(file string) string {
	first, _, _ := strings.Cut(file, "/")
	if slices.Contains(areas, first) {
		return first
	}
	return "others"
}

// span is some lines of a file.
type span struct{ from, to int }

func (s span) overlaps(o span) bool { return s.from <= o.to && o.from <= s.to }
