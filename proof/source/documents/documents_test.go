// Package documents_test keeps the documents true: their code is compiled code, and the tests, files and links that
// they name are there.
package documents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// The tests read the pages from their own folder, so that a path in a page is a path of the test.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../../docs"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// documents are all pages that a reader is offered, as paths from docs: those of the root, of docs and its folders, and
// of proof.
func documents(t *testing.T) (pages []string) {
	t.Helper()
	for _, pattern := range []string{"../*.md", "*.md", "*/*.md", "../proof/*.md", "../proof/*/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	require.Greater(t, len(pages), 25)
	return pages
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(b)
}

// body is the text of a function's body in a Go source.
func body(t *testing.T, src, name string) string {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, 0)
	require.NoError(t, err)
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == name {
			return src[fset.Position(fn.Body.Lbrace).Offset+1 : fset.Position(fn.Body.Rbrace).Offset]
		}
	}
	t.Fatalf("no function %s", name)
	return ""
}

func TestREADME_ItsCode_IsTheExample(t *testing.T) {
	_, block, ok := strings.Cut(read(t, "../README.md"), "```go\n")
	require.True(t, ok, "the README has no Go code")
	block, _, _ = strings.Cut(block, "```")
	example := body(t, read(t, "../example_test.go"), "Example")
	_, example, ok = strings.Cut(example, "\tdefer serve()()\n\n") // the one line about the embedded server
	require.True(t, ok)
	example, _, _ = strings.Cut(example, "\t// Output:")
	require.Equal(t, strings.Trim(example, "\n"), strings.Trim(body(t, block, "main"), "\n"))
	blocks := goBlocks(t, "../README.md")
	require.Len(t, blocks, 2)
	require.Contains(t, read(t, "../example_test.go"), "\n"+blocks[1], "the second is a function of its own")
}

// goBlocks are the blocks of Go code of a page.
func goBlocks(t *testing.T, page string) (blocks []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
		blocks = append(blocks, m[1])
	}
	require.NotEmpty(t, blocks, "%s has no Go code", page)
	return blocks
}

// The pages have functions of tests word for word: locks.md those of proof/source/pages/locks_test.go, and so on.
func TestPages_GoCode_IsThatOfTests(t *testing.T) {
	examples, err := filepath.Glob("../contrib/*/example_test.go")
	require.NoError(t, err)
	sources := map[string][]string{
		"adapters.md":        examples,
		"comparison.md":      {"../proof/source/pages/which_promise_test.go"},
		"faq.md":             {"../proof/source/pages/locks_test.go"},
		"fencing.md":         {"../contrib/fence/page_test.go"},
		"getting-started.md": {"examples/start/main.go"},
		"testing.md":         {"../redlatchtest/recipes_test.go"},
	}
	tests, err := filepath.Glob("../proof/source/pages/*_test.go")
	require.NoError(t, err)
	for _, file := range tests {
		switch name := strings.TrimSuffix(filepath.Base(file), "_test.go"); name {
		case "doc", "killed", "migration": // of no page, of several, or as Examples
		default:
			page := strings.ReplaceAll(name, "_", "-") + ".md"
			sources[page] = []string{file}
		}
	}
	require.Greater(t, len(sources), 10)
	for page, files := range sources {
		source := ""
		for _, file := range files {
			source += read(t, file)
		}
		for _, block := range goBlocks(t, page) {
			require.Contains(t, source, block, "%s has code that is not in %s", page, files)
		}
	}
}

// The "after" code of every migration is the body of the Example that is named above it. A whole function is one of the
// tests.
func TestMigrations_AfterCode_IsTheExamples(t *testing.T) {
	src := read(t, "../proof/source/pages/migration_test.go")
	after := regexp.MustCompile("(?s)After \\(`(Example_\\w+)`\\):\n\n```go\n(.*?)```")
	found := after.FindAllStringSubmatch(read(t, "migration.md"), -1)
	require.Len(t, found, strings.Count(src, "\nfunc Example_"), "each Example is shown once")
	for _, m := range found {
		_, example, ok := strings.Cut(body(t, src, m[1]), "\tdefer end()\n\n")
		require.True(t, ok, m[1])
		example, _, _ = strings.Cut(example, "\t// Output:")
		want := ""
		for line := range strings.Lines(example) {
			want += strings.TrimPrefix(line, "\t")
		}
		require.Equal(t, strings.TrimSpace(want), strings.TrimSpace(m[2]), m[1])
	}
	for _, block := range goBlocks(t, "migration.md") {
		if strings.HasPrefix(block, "// ") {
			require.Contains(t, src, block)
		}
	}
}

// A link leads to a file. A link into a document names one of its headings, as GitHub writes it: in small letters, with
// - for spaces, without punctuation.
func TestLinks_OfEveryPage_LeadSomewhere(t *testing.T) {
	heading := regexp.MustCompile("(?m)^#+ +(.*)$")
	link := regexp.MustCompile(`\]\(([^)#\s]*)#?([^)]*)\)`)
	anchors := func(file string) (all []string) {
		for _, m := range heading.FindAllStringSubmatch(read(t, file), -1) {
			all = append(all, strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_", r):
					return unicode.ToLower(r)
				}
				return -1
			}, strings.TrimSpace(m[1])))
		}
		return all
	}
	for _, file := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to := file
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(file), m[1])
			}
			_, err := os.Stat(to)
			require.NoError(t, err, "link in %s", file)
			if m[2] != "" && filepath.Ext(to) == ".md" {
				require.Contains(t, anchors(to), m[2], "link in %s to %s", file, to)
			}
		}
	}
}

// Every test, Go file, script and folder that a document names in backquotes is there.
func TestDocuments_NamedTestsAndFiles_Exist(t *testing.T) {
	tests, files := map[string]bool{}, map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Example|Benchmark)\w*)\(`)
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[strings.TrimPrefix(filepath.ToSlash(path), "../")] = true
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range declared.FindAllStringSubmatch(read(t, path), -1) {
				tests[m[1]] = true
			}
		}
		return nil
	}))
	testName := regexp.MustCompile("`((?:Test|Example|Benchmark)[A-Za-z0-9_]+)`")
	fileName := regexp.MustCompile("`([a-z.]+/[a-z/._]+\\.(?:go|lua|md))`")
	for _, file := range documents(t) {
		text := read(t, file)
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			require.True(t, tests[m[1]], "%s names %s, which is not a test", file, m[1])
		}
		for _, m := range fileName.FindAllStringSubmatch(text, -1) {
			require.True(t, files[m[1]], "%s names %s, which is no file", file, m[1])
		}
	}
}

// A test's name that is a link leads to the file that declares the test.
func TestLinks_OfTests_LeadToTheirFiles(t *testing.T) {
	link := regexp.MustCompile("\\[`(Test\\w+)`\\]\\(([^)]+)\\)")
	for _, file := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			declared := strings.Contains(read(t, filepath.Join(filepath.Dir(file), m[2])), "\nfunc "+m[1]+"(t *testing.T) {\n")
			require.True(t, declared, "link in %s: %s is not in %s", file, m[1], m[2])
		}
	}
}
