package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuin/gopher-lua/parse"
)

// block is some statements of a file that run together: those of Go's cover profile, or one line of Lua.
type block struct {
	file       string
	lines      span
	statements int
}

// covered is what one test runs, alone.
type covered struct {
	Seconds float64
	Failed  bool
	// Blocks are the numbers of the blocks that ran, in ranges.
	Blocks string
}

// limit is for how long one test may run.
const limit = 2 * time.Minute

// coverMap knows which tests run which blocks.
type coverMap struct {
	blocks []block
	tests  map[string]covered // by "package test"
}

// cover runs each test of the root module alone, with cover in Go and Lua.
func (m *measure) cover(ctx context.Context) (*coverMap, error) {
	lines, err := m.luaLines()
	if err != nil {
		return nil, err
	}
	tree, err := m.instrumented(ctx)
	if err != nil {
		return nil, err
	}
	var library []string
	for _, folder := range m.library {
		library = append(library, "./"+folder)
	}
	flags := []string{"-cover", "-covermode=set", "-coverpkg=" + strings.Join(library, ",")}
	programs, items := map[string]string{}, []string{}
	for _, pkg := range m.testing {
		program, err := m.compile(ctx, tree, pkg, nil, flags...)
		if err != nil {
			return nil, err
		}
		tests, err := m.testsOf(ctx, program, pkg)
		if err != nil {
			return nil, err
		}
		for _, test := range tests {
			items = append(items, pkg+" "+test)
		}
		programs[pkg] = program
	}
	known, err := m.goBlocks(ctx, programs)
	if err != nil {
		return nil, err
	}
	known = append(known, lines...)
	number := map[string]int{}
	for i, b := range known {
		number[b.key()] = i
	}
	run := newRun[covered](m, "cover")
	results, err := run.Each(ctx, items, func(c covered) string {
		return fmt.Sprintf("%d blocks", len(ranges(c.Blocks)))
	}, func(ctx context.Context, item string) (covered, error) {
		pkg, test, _ := strings.Cut(item, " ")
		return m.coverOne(ctx, programs[pkg], pkg, test, number)
	})
	return &coverMap{known, results}, err
}

func (b block) key() string { return fmt.Sprintf("%s:%d-%d", b.file, b.lines.from, b.lines.to) }

// testsOf lists the tests of a program, and none of a package without tests.
func (m *measure) testsOf(ctx context.Context, program, pkg string) ([]string, error) {
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	cmd := exec.CommandContext(ctx, program, "-test.list", "^Test")
	cmd.Dir = filepath.Join(m.work, "tree", pkg)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the tests of %s: %w", pkg, err)
	}
	isNoTest := func(s string) bool { return !strings.HasPrefix(s, "Test") }
	return slices.DeleteFunc(strings.Fields(string(out)), isNoTest), nil
}

// goBlocks are all blocks of the library. The profile of a program has those of the packages that it links.
func (m *measure) goBlocks(ctx context.Context, programs map[string]string) ([]block, error) {
	var all []block
	for pkg, program := range programs {
		if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		profile := filepath.Join(m.work, "blocks.profile")
		cmd := exec.CommandContext(ctx, program, "-test.run", "^$", "-test.coverprofile", profile)
		cmd.Dir = filepath.Join(m.work, "tree", pkg)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
		if err := m.readProfile(profile, func(b block, _ bool) { all = append(all, b) }); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b block) int { return strings.Compare(a.key(), b.key()) })
	return slices.CompactFunc(all, func(a, b block) bool { return a.key() == b.key() }), nil
}

func (m *measure) readProfile(profile string, each func(b block, ran bool)) error {
	text, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		file, rest, is := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), m.module+"/"), ":")
		var from, fromColumn, to, toColumn, statements, count int
		_, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &from, &fromColumn, &to, &toColumn, &statements, &count)
		if err == nil && is {
			each(block{file, span{from, to}, statements}, count > 0)
		}
	}
	return nil
}

func (m *measure) coverOne(ctx context.Context, program, pkg, test string, number map[string]int) (covered, error) {
	profile, lua := filepath.Join(m.work, "profile"), filepath.Join(m.work, "lua")
	for _, file := range []string{profile, lua} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return covered{}, err
		}
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, program, "-test.run", "^"+test+"$", "-test.timeout", limit.String(),
		"-test.coverprofile", profile)
	cmd.Dir = filepath.Join(m.work, "tree", pkg)
	cmd.Env = append(os.Environ(), "REDLATCH_LUA_LINES="+m.luaList(), "REDLATCH_LUA_COVER="+lua)
	out, err := cmd.CombinedOutput()
	if m.show {
		os.Stdout.Write(out)
	}
	c := covered{Failed: err != nil, Seconds: time.Since(began).Seconds()}
	var ran []int
	add := func(key string) {
		if n, is := number[key]; is {
			ran = append(ran, n)
		}
	}
	err = m.readProfile(profile, func(b block, is bool) {
		if is {
			add(b.key())
		}
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a test that panics or hangs leaves no profile
		return c, err
	}
	text, err := os.ReadFile(lua)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	for line := range strings.Lines(string(text)) {
		file, n, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "redlatch-line ")), ":")
		add(file + ":" + n + "-" + n)
	}
	c.Blocks = inRanges(ran)
	return c, nil
}

func (m *measure) luaList() string { return filepath.Join(m.work, "lua-lines") }

// luaLines finds the lines of all scripts and libraries where a statement can say that it runs, and writes them for the
// programs. A line is one if the text is still Lua with a statement before it.
func (m *measure) luaLines() (all []block, err error) {
	var list strings.Builder
	for _, folder := range m.library {
		err := filepath.WalkDir(filepath.Join(m.root, folder, "lua"), func(at string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !strings.HasSuffix(at, ".lua") {
				return err
			}
			file, err := filepath.Rel(m.root, at)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			sum := sha1.Sum(text)
			fmt.Fprintf(&list, "%s %s", hex.EncodeToString(sum[:]), filepath.ToSlash(file))
			isLibrary := strings.Contains(file, "/lib/") || folder == "internal/script"
			for _, n := range statements(string(text), isLibrary) {
				fmt.Fprintf(&list, " %d", n)
				all = append(all, block{filepath.ToSlash(file), span{n, n}, 1})
			}
			list.WriteString("\n")
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, os.WriteFile(m.luaList(), []byte(list.String()), 0o644)
}

// statements returns the numbers of the lines that may begin with one statement more. What stands in the first column
// of a library is a definition, by which the loader tells its parts.
func statements(text string, isLibrary bool) (numbers []int) {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		code := strings.TrimSpace(line)
		word, _, _ := strings.Cut(code, " ")
		if code == "" || strings.HasPrefix(code, "--") || slices.Contains([]string{"else", "elseif", "end", "until"}, word) ||
			isLibrary && line[0] != ' ' && line[0] != '\t' {
			continue
		}
		lines[i] = "do redis.log(1, '') end " + line // no expression may stand in its place
		if _, err := parse.Parse(strings.NewReader(strings.Join(lines, "")), "lua"); err == nil {
			numbers = append(numbers, i+1)
		}
		lines[i] = line
	}
	return numbers
}

// running returns the tests that run some lines of a file, the quickest first, by package.
func (c *coverMap) running(file string, lines span) map[string][]string {
	var wanted []int
	for i, b := range c.blocks {
		if b.file == file && b.lines.overlaps(lines) {
			wanted = append(wanted, i)
		}
	}
	found := map[string][]string{}
	for item, t := range c.tests {
		if t.Failed || !slices.ContainsFunc(ranges(t.Blocks), func(r span) bool {
			i, in := slices.BinarySearch(wanted, r.from)
			return in || i < len(wanted) && wanted[i] <= r.to
		}) {
			continue
		}
		pkg, test, _ := strings.Cut(item, " ")
		found[pkg] = append(found[pkg], test)
	}
	for pkg, tests := range found {
		slices.SortFunc(tests, func(a, b string) int {
			return int(1e3 * (c.tests[pkg+" "+a].Seconds - c.tests[pkg+" "+b].Seconds))
		})
	}
	return found
}

// share returns the part of the statements of an area that any test runs, of Go or of Lua.
func (c *coverMap) share(of string, lua bool) float64 {
	ran := make([]bool, len(c.blocks))
	for _, t := range c.tests {
		for _, r := range ranges(t.Blocks) {
			for i := r.from; i <= r.to; i++ {
				ran[i] = true
			}
		}
	}
	all, some := 0, 0
	for i, b := range c.blocks {
		if area(b.file) != of || strings.HasSuffix(b.file, ".lua") != lua {
			continue
		}
		all += b.statements
		if ran[i] {
			some += b.statements
		}
	}
	return 100 * float64(some) / float64(max(all, 1))
}

// inRanges writes numbers as "3-17 20-20".
func inRanges(numbers []int) string {
	slices.Sort(numbers)
	var words []string
	for i := 0; i < len(numbers); {
		from := numbers[i]
		i++
		for i < len(numbers) && numbers[i] <= numbers[i-1]+1 {
			i++
		}
		words = append(words, fmt.Sprintf("%d-%d", from, numbers[i-1]))
	}
	return strings.Join(words, " ")
}

func ranges(text string) (all []span) {
	for word := range strings.FieldsSeq(text) {
		from, to, _ := strings.Cut(word, "-")
		f, _ := strconv.Atoi(from)
		t, _ := strconv.Atoi(to)
		all = append(all, span{f, t})
	}
	return all
}
