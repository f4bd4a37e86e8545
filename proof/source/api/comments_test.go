package api_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A reader gets through a package comment in five minutes: at most 60 lines, with code. A doc comment has at most 20;
// the work on the server is described in docs/design.
func TestComments_OfPublicPackages_AreShort(t *testing.T) {
	packages := 0
	for _, s := range library(t) {
		if !strings.HasSuffix(s.path, ".go") || !s.public() {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, s.path, s.text, parser.ParseComments)
		require.NoError(t, err)
		atMost := func(limit int, doc *ast.CommentGroup) {
			if doc != nil {
				from, to := fset.Position(doc.Pos()), fset.Position(doc.End())
				assert.LessOrEqual(t, to.Line-from.Line+1, limit, "%s: lines of the comment", from)
			}
		}
		if file.Doc != nil {
			packages++
			atMost(60, file.Doc)
			assert.Contains(t, file.Doc.Text(), "\n\t", "%s: a package comment without code", s.path)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				atMost(20, n.Doc)
			case *ast.GenDecl:
				atMost(20, n.Doc)
			case *ast.TypeSpec:
				atMost(20, n.Doc)
			case *ast.ValueSpec:
				atMost(20, n.Doc)
			case *ast.Field:
				atMost(20, n.Doc)
			}
			return true
		})
	}
	require.GreaterOrEqual(t, packages, 12)
}
