// Package docs_test keeps the documents true: their code is compiled code, and the tests, files and links they name are
// there.
package docs_test

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

// documents are all that a reader is offered, as paths from here.
func documents(t *testing.T) []string {
	t.Helper()
	here, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, pattern := range []string{"adapters/*.md", "benchmarks/*.md", "chaos/*.md", "design/*.md", "safety/*.md",
		"tenures/*.md", "../*.md"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, more)
		here = append(here, more...)
	}
	return here
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

// A user reads the README and the pages beneath docs before he trusts the library. Tables of results, which are in
// folders of their own, are looked up.
func TestPagesAreFewWords(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	require.Greater(t, len(pages), 15)
	words := 0
	for _, page := range append(pages, "../README.md") {
		words += len(strings.Fields(read(t, page)))
	}
	require.LessOrEqual(t, words, 36_000, "words in docs/*.md and the README")
}

func TestTheCodeOfTheREADMEIsTheExample(t *testing.T) {
	_, block, ok := strings.Cut(read(t, "../README.md"), "```go\n")
	require.True(t, ok, "the README has no Go code")
	block, _, _ = strings.Cut(block, "```")
	example := body(t, read(t, "../example_test.go"), "Example")
	_, example, ok = strings.Cut(example, "\tdefer serve()()\n\n") // the one line about the embedded server
	require.True(t, ok)
	example, _, _ = strings.Cut(example, "\t// Output:")
	require.Equal(t, strings.Trim(example, "\n"), strings.Trim(body(t, block, "main"), "\n"))
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "../README.md"), -1)
	require.Len(t, blocks, 2)
	require.Contains(t, read(t, "../example_test.go"), "\n"+blocks[1][1], "the second is a function of its own")
}

func TestTheCodeOfTheTestingPageIsTested(t *testing.T) {
	recipes := read(t, "../redlatchtest/recipes_test.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "testing.md"), -1)
	require.Len(t, blocks, 4)
	for _, b := range blocks {
		require.Contains(t, recipes, b[1])
	}
}

// The pages have the functions of internal/pages word for word: locks.md those of its locks_test.go, and so on.
func TestTheCodeOfThePagesIsTested(t *testing.T) {
	sources, err := filepath.Glob("../internal/pages/*_test.go")
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	for _, file := range sources {
		switch filepath.Base(file) {
		case "doc_test.go", "killed_test.go", "migration_test.go": // of no page, of several, or as Examples
			continue
		}
		page := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), "_test.go"), "_", "-") + ".md"
		source := read(t, file)
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, page), -1)
		require.NotEmpty(t, blocks, "%s has no Go code", page)
		for _, b := range blocks {
			require.Contains(t, source, b[1], "%s has code that is not in %s", page, file)
		}
	}
}

// The pages of the adapters have functions of their modules' Examples.
func TestTheCodeOfTheAdaptersIsTested(t *testing.T) {
	pages, err := filepath.Glob("adapters/*.md")
	require.NoError(t, err)
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		source := read(t, filepath.Join("../contrib", name, "example_test.go"))
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, page), -1)
		require.NotEmpty(t, blocks, "%s has no Go code", page)
		for _, b := range blocks {
			require.Contains(t, source, b[1], "%s has code that is not in its module's example_test.go", page)
		}
	}
}

// The "after" code of every migration is the body of the Example that is named above it.
func TestTheCodeOfTheMigrationsIsTheExamples(t *testing.T) {
	src := read(t, "../internal/pages/migration_test.go")
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
}

func TestEveryLinkOfTheDocumentsLeadsSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)`)
	for _, file := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(file), m[1]))
			require.NoError(t, err, "link in %s", file)
		}
	}
}

// A link into a document names one of its headings, as GitHub writes it: in small letters, with - for spaces, without
// punctuation.
func TestEveryLinkIntoADocumentMeetsAHeading(t *testing.T) {
	heading := regexp.MustCompile("(?m)^#+ +(.*)$")
	link := regexp.MustCompile(`\]\(([^)#\s]*)#([^)]+)\)`)
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
			to := file
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(file), m[1])
			}
			if !strings.Contains(m[1], "://") && filepath.Ext(to) == ".md" {
				require.Contains(t, anchors(to), m[2], "link in %s to %s", file, to)
			}
		}
	}
}

// Every test, Go file, script and folder that a document names in backquotes is there.
func TestWhatTheDocumentsNameExists(t *testing.T) {
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

// A test's name that is a link leads to the file that declares the test. On the pages on failures every name of a test
// is such a link: a cell of their tables is worth no more than the test that can be read behind it.
func TestATestThatIsLinkedIsInTheFileOfTheLink(t *testing.T) {
	link := regexp.MustCompile("\\[`(Test\\w+)`\\]\\(([^)]+)\\)")
	for _, file := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			declared := strings.Contains(read(t, filepath.Join(filepath.Dir(file), m[2])), "\nfunc "+m[1]+"(t *testing.T) {\n")
			require.True(t, declared, "link in %s: %s is not in %s", file, m[1], m[2])
		}
	}
	for _, file := range []string{"safety.md", "safety/tests.md"} {
		rest := link.ReplaceAllString(read(t, file), "")
		require.Empty(t, regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(rest, -1),
			"%s names tests without a link to their files", file)
	}
}
