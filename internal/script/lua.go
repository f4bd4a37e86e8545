package script

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
)

// How Lua is laid out. A package keeps its scripts in lua/, one to a file, and the libraries that only its scripts use
// in lua/lib/. Libraries of several packages are in this package's own lua/. The header of a script or library, the
// comment with which it begins, has a line
//
//	-- uses: clock, owners
//
// which names the libraries whose functions it calls. A library consists of local functions and local constants, each
// of which begins in the first column. A library may use other libraries.
//
// The text that is sent is the script with the functions and constants of its libraries that it uses, directly or
// through others. The server makes every function anew in each run, so functions that are not used are left out. The
// libraries stand after the script's header, or where the script has the line
//
//	-- libraries
//
// The most frequent path stands before that line, and costs no function at all.
//
// A function of a library may have that line too. Values that only this function uses stand below it, so they
// are made when the function is called: use it for functions that a script seldom needs.

//go:embed lua
var libraries embed.FS

// marker is the line where libraries stand.
const marker = "-- libraries\n"

// Load makes a script of the file lua/<file>.lua in files, with the libraries that the file uses. name stands in error
// texts. Load panics if the file is missing. The text is put together when the script is first sent, so that a program
// pays at its start for no script. Sending panics if a library is missing or is not laid out as a library, which no
// released program does (TestScripts_Libraries_AreDeclared puts every file together).
func Load(name string, files fs.FS, file string) *Script {
	if _, err := fs.Stat(files, "lua/"+file+".lua"); err != nil {
		panic("script: " + err.Error())
	}
	return lazy(name, func() string {
		src, err := Compose(files, file)
		if err != nil {
			panic("script: " + err.Error())
		}
		return src
	})
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
	before, after, marked := strings.Cut("\n"+body, "\n"+marker)
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

// cutHeader splits a text after its leading comment.
func cutHeader(text string) (head, rest string) {
	n := 0
	for strings.HasPrefix(text[n:], "--") && !strings.HasPrefix(text[n:], marker) {
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
	for line := range strings.Lines(head) {
		if list, found := strings.CutPrefix(line, "-- uses: "); found {
			return strings.Split(strings.TrimSuffix(list, "\n"), ", ")
		}
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
			text, err = libraries.ReadFile("lua/" + name + ".lua")
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
		switch names := defined(line); {
		case names != nil:
			parts = append(parts, part{names, line})
		case strings.HasPrefix(line, "--") && (line != marker || len(parts) == 0), strings.TrimSpace(line) == "":
		case len(parts) == 0 || line != marker && strings.IndexAny(line, " \te})]") != 0:
			return nil, fmt.Errorf("library %s has %q in the first column, which defines nothing", name, strings.TrimSpace(line))
		default:
			parts[len(parts)-1].text += line
		}
	}
	return parts, nil
}

// defined are the names that a line defines in the first column: of a function, or of constants.
func defined(line string) (names []string) {
	rest, found := strings.CutPrefix(line, "local ")
	if !found {
		return nil
	}
	if f, found := strings.CutPrefix(rest, "function "); found {
		return []string{f[:wordEnd(f, 0)]}
	}
	for more := true; more; rest, more = strings.CutPrefix(rest, ", ") {
		n := wordEnd(rest, 0)
		if n == 0 {
			break
		}
		names, rest = append(names, rest[:n]), rest[n:]
	}
	return names
}

// pick returns the texts of the parts that a text uses, directly or through others, in their order. Two parts do not
// define the same name. A part that only one part with the marker uses stands inside that part, at the marker.
func pick(parts []part, text string) (texts []string) {
	of := map[string]int{}
	for i, p := range parts {
		for _, name := range p.names {
			of[name] = i
		}
	}
	all := used(parts, of, text, -1)
	put := slices.Clone(parts)
	for i := range put { // a function stands after what it uses, so what is within it is put together before it is
		before, after, marked := strings.Cut(put[i].text, "\n"+marker)
		if !all[i] || !marked {
			continue
		}
		without, inside := used(parts, of, text, i), ""
		for j := range i {
			if all[j] && !without[j] {
				all[j], inside = false, inside+put[j].text
			}
		}
		put[i].text = before + "\n" + inside + after
	}
	for i, p := range put {
		if all[i] {
			texts = append(texts, p.text)
		}
	}
	return texts
}

// used returns which of the parts a text uses. Parts that only the part with the number but uses are left out. of are
// the numbers of the parts by their names.
func used(parts []part, of map[string]int, text string, but int) []bool {
	taken := make([]bool, len(parts))
	for todo := []string{text}; len(todo) > 0; {
		text, todo = todo[0], todo[1:]
		for name := range identifiers(text) {
			if i, found := of[name]; found && !taken[i] {
				taken[i] = true
				if i != but {
					todo = append(todo, parts[i].text)
				}
			}
		}
	}
	return taken
}

// identifiers are the names in a piece of Lua, without fields, comments and strings. A regular expression would take
// ten times as long at the first call of each script.
func identifiers(text string) iter.Seq[string] {
	return func(yield func(string) bool) { eachIdentifier(text, yield) }
}

func eachIdentifier(text string, yield func(string) bool) {
	for i := 0; i < len(text); {
		from := i
		switch c := text[i]; {
		case c == '-' && strings.HasPrefix(text[i:], "--"):
			if i = strings.IndexByte(text[from:], '\n') + from; i < from {
				return
			}
		case c == '\'' || c == '"':
			i = stringEnd(text, i)
		case c == '.' && strings.HasPrefix(text[i:], ".."):
			i += len("..")
		case c == '.' || c == ':':
			if i++; i < len(text) && isWord(text[i]) {
				i = wordEnd(text, i)
			}
		case isWord(c):
			if i = wordEnd(text, i); !yield(text[from:i]) {
				return
			}
		default:
			i++
		}
	}
}

func isWord(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' }

// wordEnd is where the word that begins at i ends.
func wordEnd(text string, i int) int {
	for i < len(text) && isWord(text[i]) {
		i++
	}
	return i
}

// stringEnd is where the string ends whose first quote is at i.
func stringEnd(text string, i int) int {
	quote := text[i]
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case quote:
			return i + 1
		}
	}
	return i
}
