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
	for _, lib := range libs {
		parts = append(parts, lib.parts...)
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
	length := 0
	for strings.HasPrefix(text[length:], "--") && !strings.HasPrefix(text[length:], marker) {
		end := strings.IndexByte(text[length:], '\n')
		if end < 0 {
			return text, ""
		}
		length += end + 1
	}
	return text[:length], text[length:]
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
		if slices.ContainsFunc(found, func(lib library) bool { return lib.name == name }) {
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
	if function, found := strings.CutPrefix(rest, "function "); found {
		return []string{function[:wordEnd(function, 0)]}
	}
	for more := true; more; rest, more = strings.CutPrefix(rest, ", ") {
		length := wordEnd(rest, 0)
		if length == 0 {
			break
		}
		names, rest = append(names, rest[:length]), rest[length:]
	}
	return names
}

// pick returns the texts of the parts that a text uses, directly or through others, in their order. Two parts do not
// define the same name. A part that only one part with the marker uses stands inside that part, at the marker.
func pick(parts []part, text string) (texts []string) {
	of := map[string]int{}
	for index, piece := range parts {
		for _, name := range piece.names {
			of[name] = index
		}
	}
	all := used(parts, of, text, -1)
	put := slices.Clone(parts)
	for index := range put { // a function stands after what it uses, so what is within it is put together before it is
		before, after, marked := strings.Cut(put[index].text, "\n"+marker)
		if !all[index] || !marked {
			continue
		}
		without, inside := used(parts, of, text, index), ""
		for j := range index {
			if all[j] && !without[j] {
				all[j], inside = false, inside+put[j].text
			}
		}
		put[index].text = before + "\n" + inside + after
	}
	for index, piece := range put {
		if all[index] {
			texts = append(texts, piece.text)
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
			if index, found := of[name]; found && !taken[index] {
				taken[index] = true
				if index != but {
					todo = append(todo, parts[index].text)
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
	for index := 0; index < len(text); {
		from := index
		switch char := text[index]; {
		case char == '-' && strings.HasPrefix(text[index:], "--"):
			if index = strings.IndexByte(text[from:], '\n') + from; index < from {
				return
			}
		case char == '\'' || char == '"':
			index = stringEnd(text, index)
		case char == '.' && strings.HasPrefix(text[index:], ".."):
			index += len("..")
		case char == '.' || char == ':':
			if index++; index < len(text) && isWord(text[index]) {
				index = wordEnd(text, index)
			}
		case isWord(char):
			if index = wordEnd(text, index); !yield(text[from:index]) {
				return
			}
		default:
			index++
		}
	}
}

func isWord(char byte) bool {
	return char == '_' || 'a' <= char|0x20 && char|0x20 <= 'z' || '0' <= char && char <= '9'
}

// wordEnd is where the word that begins at i ends.
func wordEnd(text string, index int) int {
	for index < len(text) && isWord(text[index]) {
		index++
	}
	return index
}

// stringEnd is where the string ends whose first quote is at i.
func stringEnd(text string, index int) int {
	quote := text[index]
	for index++; index < len(text); index++ {
		switch text[index] {
		case '\\':
			index++
		case quote:
			return index + 1
		}
	}
	return index
}
