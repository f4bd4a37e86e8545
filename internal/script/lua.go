package script

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// How Lua is laid out. A package keeps its scripts in lua/, one to a file, and the libraries that only its scripts use in
// lua/lib/. Libraries of several packages are in this package's own lua/. The header of a script or library, the comment
// with which it begins, has a line
//
//	-- uses: clock, owners
//
// which names the libraries whose functions it calls. A library consists of local functions and local constants, each of which
// begins in the first column. It may use other libraries.
//
// What is sent is the script with those functions and constants of its libraries that it uses, directly or through others.
// The server makes every function anew in each run, so only functions that are used are sent. They stand after the script's
// header, or where the script has the line
//
//	-- libraries
//
// if it has one. The most frequent path stands before that line, and costs no function at all.

//go:embed lua
var shared embed.FS

// Load makes a script of the file lua/<file>.lua in files, with what it uses of its libraries. name stands in error texts. Load
// panics if the file or one of its libraries is missing or is not laid out as scripts are.
func Load(name string, files fs.FS, file string) *Script {
	src, err := Compose(files, file)
	if err != nil {
		panic("script: " + err.Error())
	}
	return New(name, src)
}

// Compose returns the text that Load has sent for the file lua/<file>.lua in files.
func Compose(files fs.FS, file string) (string, error) {
	text, err := fs.ReadFile(files, "lua/"+file+".lua")
	if err != nil {
		return "", err
	}
	head, body := cutHeader(string(text))
	libs, err := resolve(files, file, head, nil)
	if err != nil {
		return "", err
	}
	before, after, marked := strings.Cut("\n"+body, "\n-- libraries\n")
	if marked {
		head += strings.TrimPrefix(before+"\n", "\n")
	} else {
		after = body
	}
	var parts []part
	for _, l := range libs {
		parts = append(parts, l.parts...)
	}
	return head + strings.Join(pick(parts, after), "") + after, nil
}

// library is one file of functions.
type library struct {
	name  string
	parts []part
}

// part is one definition of a library.
type part struct {
	names []string
	text  string
}

var (
	usesLine   = regexp.MustCompile(`(?m)^-- uses: (.*)$`)
	definition = regexp.MustCompile(`^local (?:function (\w+)|(\w+(?:, \w+)*))`)
	words      = regexp.MustCompile(`--.*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|\.\.|[.:]?[A-Za-z_]\w*`)
)

// cutHeader splits a text after its leading comment.
func cutHeader(text string) (head, rest string) {
	n := 0
	for strings.HasPrefix(text[n:], "--") && !strings.HasPrefix(text[n:], "-- libraries\n") {
		end := strings.IndexByte(text[n:], '\n')
		if end < 0 {
			return text, ""
		}
		n += end + 1
	}
	return text[:n], text[n:]
}

// declared are the libraries that a header says are used.
func declared(head string) []string {
	if m := usesLine.FindStringSubmatch(head); m != nil {
		return strings.Split(m[1], ", ")
	}
	return nil
}

// resolve adds to found the libraries that a header declares, each after those that it uses itself.
func resolve(files fs.FS, of, head string, found []library) ([]library, error) {
	for _, name := range declared(head) {
		if slices.ContainsFunc(found, func(l library) bool { return l.name == name }) {
			continue
		}
		text, err := fs.ReadFile(files, "lua/lib/"+name+".lua")
		if errors.Is(err, fs.ErrNotExist) {
			text, err = shared.ReadFile("lua/" + name + ".lua")
		}
		if err != nil {
			return nil, fmt.Errorf("%s.lua uses %s: %w", of, name, err)
		}
		own, rest := cutHeader(string(text))
		if found, err = resolve(files, name, own, found); err != nil {
			return nil, err
		}
		parts, err := divide(name, rest)
		if err != nil {
			return nil, err
		}
		found = append(found, library{name, parts})
	}
	return found, nil
}

// divide splits a library into its definitions. Comments in the first column are left out.
func divide(name, text string) (parts []part, err error) {
	for line := range strings.Lines(text) {
		switch m := definition.FindStringSubmatch(line); {
		case m != nil:
			parts = append(parts, part{strings.Split(m[1]+m[2], ", "), line})
		case strings.HasPrefix(line, "--"), strings.TrimSpace(line) == "":
		case len(parts) == 0 || strings.IndexAny(line, " \te})]") != 0:
			return nil, fmt.Errorf("library %s has %q in the first column, which defines nothing", name, strings.TrimSpace(line))
		default:
			parts[len(parts)-1].text += line
		}
	}
	return parts, nil
}

// pick returns the texts of the parts that a text uses, directly or through others, in their order.
func pick(parts []part, text string) (texts []string) {
	taken := make([]bool, len(parts))
	for todo := []string{text}; len(todo) > 0; {
		used := identifiers(todo[0])
		todo = todo[1:]
		for i, p := range parts {
			if !taken[i] && slices.ContainsFunc(p.names, func(n string) bool { return used[n] }) {
				taken[i] = true
				todo = append(todo, p.text)
			}
		}
	}
	for i, p := range parts {
		if taken[i] {
			texts = append(texts, p.text)
		}
	}
	return texts
}

// identifiers are the names in a piece of Lua, but for fields.
func identifiers(text string) map[string]bool {
	found := map[string]bool{}
	for _, w := range words.FindAllString(text, -1) {
		if strings.IndexAny(w, ".:-'\"") != 0 {
			found[w] = true
		}
	}
	return found
}
