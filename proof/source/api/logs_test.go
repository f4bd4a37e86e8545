package api_test

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logLine is a line that the library logs. level and keys are "" and nil where the text is not in the call that logs
// it.
type logLine struct {
	where, level, text string
	keys               []string
}

// logLines are those of the source: every text that begins as log lines do, and every kind of complaint.
func logLines(t *testing.T) (lines []logLine) {
	t.Helper()
	set, all := tree(t)
	constants, complaints := map[string]string{}, map[string]bool{} // by directory and name
	for _, s := range library(all) {
		if s.file == nil || strings.HasPrefix(s.dir(), "internal/redistest") {
			continue
		}
		at := map[token.Pos]logLine{} // by the position of the text
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) {
						if v, ok := literal(n.Values[i]); ok {
							constants[s.dir()+" "+name.Name] = v
						}
					}
				}
			case *ast.CallExpr:
				fn := ""
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok {
					fn = sel.Sel.Name
				}
				if slices.Contains([]string{"Complain", "failed", "bears"}, fn) {
					for _, a := range n.Args {
						if id, ok := a.(*ast.Ident); ok {
							complaints[s.dir()+" "+id.Name] = true
						} else if text, ok := literal(a); ok && fn == "Complain" {
							lines = append(lines, complaint(set.Position(a.Pos()).String(), text))
						}
					}
				}
				if slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, fn) && len(n.Args) > 0 {
					line := logLine{level: fn, keys: []string{}}
					for i := 1; i < len(n.Args) && !n.Ellipsis.IsValid(); i += 2 {
						key, ok := literal(n.Args[i])
						require.True(t, ok, "%s: a key that is no literal", set.Position(n.Pos()))
						line.keys = append(line.keys, key)
					}
					if n.Ellipsis.IsValid() {
						line.keys = nil
					}
					at[n.Args[0].Pos()] = line
				}
			case ast.Expr:
				text, ok := literal(n)
				_, seen := at[n.Pos()]
				if !ok || !strings.HasPrefix(text, "redlatch: ") || text == "redlatch: " || text == "redlatch: …" ||
					strings.HasPrefix(text, "redlatch: %") || seen && at[n.Pos()].text != "" {
					return true
				}
				line := at[n.Pos()]
				line.where, line.text = set.Position(n.Pos()).String(), strings.TrimPrefix(text, "redlatch: ")
				at[n.Pos()] = line
				lines = append(lines, line)
				return false
			}
			return true
		})
	}
	for c := range complaints {
		if text, ok := constants[c]; ok {
			lines = append(lines, complaint(c, text))
		}
	}
	return lines
}

// complaint is the line that Session.Complain logs with this text.
func complaint(where, text string) logLine {
	return logLine{where, "Warn", text, []string{"name", "error", "more"}}
}

// literal is a text as it stands in the source, in one piece or added up, with an ellipsis for what is no text.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); e.Kind == token.STRING && err == nil {
			return s, true
		}
	case *ast.BinaryExpr:
		left, ok := literal(e.X)
		if e.Op != token.ADD || !ok {
			return "", false
		}
		right, ok := literal(e.Y)
		if !ok {
			right = "…"
		}
		return left + right, true
	}
	return "", false
}

func TestEveryLogLineIsInTheDocument(t *testing.T) {
	document, err := os.ReadFile(root + "/docs/logs.md")
	require.NoError(t, err)
	section := string(document)
	row := regexp.MustCompile("(?m)^\\| (Debug|Info|Warn|Error) \\| `(.+?)` \\| (.*?) ?\\| \\S.* \\|$")
	documented := map[string]logLine{}
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		text := strings.ReplaceAll(m[2], `\|`, "|")
		documented[text] = logLine{level: m[1], text: text, keys: strings.Fields(strings.ReplaceAll(m[3], "`", ""))}
	}
	require.Len(t, documented, strings.Count(section, "\n|")-2, "a row has another form")
	word := regexp.MustCompile(`%[a-z]`)
	seen := map[string]bool{}
	for _, line := range logLines(t) {
		text := word.ReplaceAllString(line.text, "…")
		d, ok := documented[text]
		require.True(t, ok, "%s logs %q, which the document does not name", path.Base(line.where), text)
		if line.level != "" {
			require.Equal(t, d.level, line.level, text)
		}
		if line.keys != nil {
			require.Equal(t, d.keys, line.keys, text)
		}
		seen[text] = true
	}
	for text := range documented {
		require.True(t, seen[text], "the document names %q, which nobody logs", text)
	}
	require.Greater(t, len(seen), 15)
}
