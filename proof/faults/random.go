package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// perArea is how many random faults an area has, half of them in Lua where it has enough of it.
const perArea = 40

// swaps are the operators that a random fault exchanges, in Go and in Lua.
var swaps = map[bool][][2]string{
	false: {{" == ", " != "}, {" != ", " == "}, {" < ", " <= "}, {" > ", " >= "}, {" <= ", " < "}, {" >= ", " > "},
		{" + ", " - "}, {" - ", " + "}, {" && ", " || "}, {" || ", " && "}},
	true: {{" == ", " ~= "}, {" ~= ", " == "}, {" < ", " <= "}, {" > ", " >= "}, {" <= ", " < "}, {" >= ", " > "},
		{" + ", " - "}, {" - ", " + "}, {" and ", " or "}, {" or ", " and "}},
}

var (
	goCall  = regexp.MustCompile(`^\t+[a-z][\w.]*\(.*\)$`)
	luaCall = regexp.MustCompile(`^ +redis\.call\(.*\)$`)
)

// candidates are all random faults of a text: an operator that is exchanged, or a call that is left out.
func candidates(file, text string) (all []fault) {
	lua := strings.HasSuffix(file, ".lua")
	inFunction := lua
	for line := range strings.SplitSeq(text, "\n") {
		if !lua && strings.HasPrefix(line, "func ") {
			inFunction = true
			continue
		}
		if line == "}" {
			inFunction = lua
		}
		code, _, _ := strings.Cut(line, map[bool]string{false: " //", true: " --"}[lua])
		trimmed := strings.TrimSpace(code)
		if !inFunction || trimmed == "" || strings.HasPrefix(trimmed, "//") || strings.HasPrefix(trimmed, "--") ||
			strings.Contains(code, "err != nil") || strings.Count(text, line) != 1 {
			continue
		}
		add := func(now string) {
			all = append(all, fault{name: fmt.Sprintf("%s: %s", file, strings.TrimSpace(now)), file: file, old: line, new: now})
		}
		for _, s := range swaps[lua] {
			if before, after, is := strings.Cut(code, s[0]); is {
				add(before + s[1] + after + line[len(code):])
			}
		}
		if lua && luaCall.MatchString(code) || !lua && goCall.MatchString(code) && !strings.Contains(code, "panic(") {
			all = append(all, fault{name: file + ": without " + trimmed, file: file, old: line,
				new: map[bool]string{false: "", true: strings.Replace(line, trimmed, "local _ = 0", 1)}[lua]})
		}
	}
	return all
}

// draw writes the random faults of an area: the first that compile, in the order of a seed.
func (m *measure) draw(ctx context.Context, of string, seed uint64) error {
	var kinds [2][]fault // in Go, in Lua
	for _, folder := range m.library {
		if area(folder+"/") != of {
			continue
		}
		files, err := filepath.Glob(filepath.Join(m.root, folder, "*.go"))
		if err != nil {
			return err
		}
		scripts, err := filepath.Glob(filepath.Join(m.root, folder, "lua", "*.lua"))
		if err != nil {
			return err
		}
		libraries, err := filepath.Glob(filepath.Join(m.root, folder, "lua", "lib", "*.lua"))
		if err != nil {
			return err
		}
		for _, at := range slices.Concat(files, scripts, libraries) {
			if strings.HasSuffix(at, "_test.go") {
				continue
			}
			text, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			file, err := filepath.Rel(m.root, at)
			if err != nil {
				return err
			}
			kind := 0
			if strings.HasSuffix(file, ".lua") {
				kind = 1
			}
			kinds[kind] = append(kinds[kind], candidates(filepath.ToSlash(file), string(text))...)
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, list := range kinds {
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	var texts, names []string
	for n := 0; len(texts) < perArea && len(kinds[0])+len(kinds[1]) > 0; n++ {
		list := &kinds[n%2]
		if len(*list) == 0 {
			continue
		}
		f := (*list)[0]
		*list = (*list)[1:]
		if slices.Contains(names, f.name) || !m.compiles(ctx, &f) {
			continue
		}
		names = append(names, f.name)
		texts = append(texts, f.text())
		fmt.Fprintf(os.Stderr, "%s %d of %d: %s\n", of, len(texts), perArea, f.name)
	}
	file := filepath.Join(m.root, "proof", "faults", "random", of+".txt")
	return os.WriteFile(file, []byte(strings.Join(texts, "\n")), 0o644)
}

func (m *measure) compiles(ctx context.Context, f *fault) bool {
	text, _, err := f.plant(m.root)
	if err != nil || ctx.Err() != nil {
		return false
	}
	if f.isLua() {
		_, err := parse.Parse(strings.NewReader(string(text)), f.file)
		return err == nil
	}
	to := filepath.Join(m.work, "drawn.go")
	overlay := filepath.Join(m.work, "drawn.json")
	if os.WriteFile(to, text, 0o644) != nil ||
		os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, filepath.Join(m.root, f.file), to), 0o644) != nil {
		return false
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "./"+filepath.Dir(f.file))
	cmd.Dir = m.root
	return cmd.Run() == nil
}
