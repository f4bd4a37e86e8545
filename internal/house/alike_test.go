package house_test

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// onHub are the packages whose Client is made on a hub.
var onHub = []string{"rlock", "rlock/election", "rsemaphore", "rcounter", "rcounter/stock", "rcounter/redpacket",
	"rcounter/ratelimit"}

// logKeys are all that a log line may name.
var logKeys = []string{
	"name", "error", "owner", // one thing, one key
	"channel", "command", "due", "effect", "holds", "maxmemory-policy", "more", "node", "panic", "permits", "policy",
	"silence", "trust",
}

// text is an expression as it stands in the source.
func text(set *token.FileSet, s source, n ast.Node) string {
	return string(s.text[set.Position(n.Pos()).Offset:set.Position(n.End()).Offset])
}

// signature is a function's parameters and results, as types only.
func signature(set *token.FileSet, s source, t *ast.FuncType) (params, results string) {
	types := func(l *ast.FieldList) string {
		var all []string
		if l != nil {
			for _, f := range l.List {
				for range max(1, len(f.Names)) {
					all = append(all, text(set, s, f.Type))
				}
			}
		}
		return strings.Join(all, ", ")
	}
	return types(t.Params), types(t.Results)
}

// functions calls fn for every function of the public packages, with the type it is a method of, or "".
func functions(all []source, fn func(s source, on string, d *ast.FuncDecl)) {
	for _, s := range library(all) {
		if s.file == nil || !public(s.dir()) {
			continue
		}
		for _, d := range s.file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				on := ""
				if d.Recv != nil {
					on = receiver(d.Recv.List[0].Type)
				}
				fn(s, on, d)
			}
		}
	}
}

func TestEveryClientIsMadeAndClosedAlike(t *testing.T) {
	set, all := house(t)
	made, closed := map[string]bool{}, map[string]bool{}
	functions(all, func(s source, on string, d *ast.FuncDecl) {
		params, results := signature(set, s, d.Type)
		switch {
		case on == "" && d.Name.Name == "New" && slices.Contains(onHub, s.dir()):
			require.Equal(t, "*pubsub.Hub, Options", params, s.path)
			require.Equal(t, "*Client, error", results, s.path)
			made[s.dir()] = true
		case (on == "Client" || on == "Hub") && d.Name.Name == "Close":
			require.Equal(t, "context.Context", params, s.path)
			require.Equal(t, "error", results, s.path)
			closed[s.dir()] = true
		}
	})
	for _, dir := range onHub {
		require.True(t, made[dir], "%s has no New", dir)
		require.True(t, closed[dir], "%s: Client has no Close", dir)
	}
	require.True(t, closed["pubsub"] && closed[""], "a Hub and the client of everything are closed alike")
}

func TestInspectIsTheOneVerbOfLooking(t *testing.T) {
	set, all := house(t)
	seen := 0
	functions(all, func(s source, on string, d *ast.FuncDecl) {
		if !ast.IsExported(on) {
			return
		}
		require.NotContains(t, []string{"State", "Status", "Stat", "Info"}, d.Name.Name, "%s: %s", s.path, on)
		if d.Name.Name == "Inspect" {
			params, results := signature(set, s, d.Type)
			require.Equal(t, "context.Context", params, s.path)
			require.Regexp(t, `^\w*(State|Status), error$`, results, s.path)
			seen++
		}
	})
	require.GreaterOrEqual(t, seen, 8)
}

func TestStatsAreCountsThatNobodyIsAskedFor(t *testing.T) {
	set, all := house(t)
	seen := 0
	functions(all, func(s source, on string, d *ast.FuncDecl) {
		if d.Name.Name == "Stats" {
			params, results := signature(set, s, d.Type)
			require.Contains(t, []string{"Client", "Hub"}, on, s.path)
			require.Equal(t, ": Stats", params+": "+results, s.path)
			seen++
		}
	})
	require.GreaterOrEqual(t, seen, 5)
}

// A default or bound is said in the doc comment of its option, and in the text of the error that refuses it.
func TestNoBoundIsExported(t *testing.T) {
	set, all := house(t)
	bound := regexp.MustCompile(`^=(Default|Min|Max)[A-Z]`)
	for _, s := range library(all) {
		if s.file == nil || !public(s.dir()) {
			continue
		}
		exported(set, s.file, func(name string, _ bool) {
			require.NotRegexp(t, bound, name, s.path)
		})
	}
}

// inBrackets are the fields of its event that the comment of a kind names.
var inBrackets = regexp.MustCompile(`\(([A-Z][A-Za-z]*(?:, [A-Z][A-Za-z]*)*)(?::[^)]*)?\)`)

// The field Kind of an event says which others are set, so the comment of each kind does.
func TestEveryObserverIsGivenAContextAndAnEvent(t *testing.T) {
	set, all := house(t)
	begins := []string{"rlock", "rsemaphore"} // whose events begin calls
	seen := 0
	for _, s := range library(all) {
		if s.file == nil || !public(s.dir()) {
			continue
		}
		fields, named, kinds, observer := map[string]bool{}, map[string]bool{}, 0, ""
		for _, d := range s.file.Decls {
			d, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			typed := "" // of the constants of a block, by its first
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					switch typ := spec.Type.(type) {
					case *ast.FuncType:
						if spec.Name.Name == "Observer" {
							params, results := signature(set, s, typ)
							observer = params + ": " + results
						}
					case *ast.StructType:
						if spec.Name.Name == "Event" {
							for _, f := range typ.Fields.List {
								for _, name := range f.Names {
									fields[name.Name] = true
								}
							}
						}
					default:
						require.NotEqual(t, "Observer", spec.Name.Name, "%s: it is a function", s.path)
					}
				case *ast.ValueSpec:
					if id, ok := spec.Type.(*ast.Ident); ok {
						typed = id.Name
					}
					if d.Tok != token.CONST || typed != "EventKind" {
						continue
					}
					doc := spec.Doc.Text()
					if !d.Lparen.IsValid() {
						doc = d.Doc.Text()
					}
					for _, m := range inBrackets.FindAllStringSubmatch(strings.ReplaceAll(doc, "\n", " "), -1) {
						for name := range strings.SplitSeq(m[1], ", ") {
							if !strings.HasPrefix(name, "Err") || name == "Err" { // no error
								named[name] = true
							}
						}
					}
					require.Regexp(t, "^Event[A-Z]", spec.Names[0].Name, s.path)
					kinds++
				}
			}
		}
		if observer == "" {
			continue
		}
		seen++
		want := "context.Context, Event: "
		if slices.Contains(begins, s.dir()) {
			want += "context.Context"
		}
		if s.dir() == "pubsub" { // a connection is nobody's call
			want = "Event: "
		} else {
			require.True(t, fields["Name"], s.path)
		}
		require.Equal(t, want, observer, s.path)
		if !fields["Kind"] { // there is one kind
			require.Zero(t, kinds, s.path)
			continue
		}
		require.Positive(t, kinds, s.path)
		delete(fields, "Kind")
		delete(fields, "Name")
		require.Equal(t, fields, named, "%s: the kinds name the fields that they set", s.path)
	}
	require.Equal(t, 7, seen)
}

func TestLogLinesUseOneSetOfKeys(t *testing.T) {
	_, all := house(t)
	seen := 0
	for _, s := range library(all) {
		if s.file == nil || strings.HasPrefix(path.Base(s.dir()), "redistest") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fn, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, fn.Sel.Name) || len(call.Args) < 3 {
				return true
			}
			for i := 1; i < len(call.Args); i += 2 {
				if key, ok := call.Args[i].(*ast.BasicLit); ok && key.Kind == token.STRING {
					require.Contains(t, logKeys, strings.Trim(key.Value, `"`), s.path)
					seen++
				}
			}
			return true
		})
	}
	require.Greater(t, seen, 10)
}
