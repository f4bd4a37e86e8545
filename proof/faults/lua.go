package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Both faults and cover in Lua go through the loader, by which all scripts of the library are read: an overlay has it
// call read in planted.go.txt, which changes what it reads as the environment says.
const loader = "internal/script/lua.go"

// The files that are added to the library, to the tests' harness, and to the in-memory server.
var (
	//go:embed planted.go.txt
	plantedText []byte
	//go:embed keeplog.go.txt
	keepLog []byte
	//go:embed noteline.go.txt
	noteLine []byte
)

// planting returns the texts with which a program plants a fault in a script, or instruments all scripts.
func (b *bench) planting() (map[string][]byte, error) {
	text, err := b.replaced(loader, "fs.ReadFile(files, ", "planted(files, ", "libraries.ReadFile(", "planted(libraries, ")
	return map[string][]byte{loader: text, "internal/script/planted.go": plantedText}, err
}

// instrumented returns a copy of the tree whose tests note the lines of Lua that run. It is a copy because the cover
// tool reads no overlay. An instrumented script says each line by redis.log. A real server writes this to its log,
// which the tests delete with the server: there the line is copied first. The function of the in-memory server does
// nothing: in the copy it notes the line.
func (b *bench) instrumented(ctx context.Context) (root string, err error) {
	const server = "github.com/alicebob/miniredis/v2"
	embedded, err := output(ctx, b.root, "go", "list", "-m", "-f", "{{.Dir}}", server)
	if err != nil {
		return "", err
	}
	root = filepath.Join(b.work, "tree")
	memory := filepath.Join(b.work, "miniredis")
	if err := os.CopyFS(memory, os.DirFS(embedded)); err != nil {
		return "", err
	}
	files, err := output(ctx, b.root, "git", "ls-files")
	if err != nil {
		return "", err
	}
	for file := range strings.Lines(files) {
		file = strings.TrimSpace(file)
		text, err := os.ReadFile(filepath.Join(b.root, file))
		if errors.Is(err, fs.ErrNotExist) { // deleted, and not yet committed
			continue
		}
		if err != nil {
			return "", err
		}
		if err := write(filepath.Join(root, file), text); err != nil {
			return "", err
		}
	}
	texts, err := b.planting()
	if err != nil {
		return "", err
	}
	const launch = "internal/redistest/launch.go"
	if texts[launch], err = b.replaced(launch, "	r.end()\n	_ = os.RemoveAll(r.dir)",
		"	r.end()\n	keepLog(r.dir)\n	_ = os.RemoveAll(r.dir)"); err != nil {
		return "", err
	}
	texts["internal/redistest/keeplog.go"] = keepLog
	module, err := b.replaced("go.mod")
	if err != nil {
		return "", err
	}
	texts["go.mod"] = fmt.Appendf(module, "\nreplace %s => %s\n", server, memory)
	for file, text := range texts {
		if err := write(filepath.Join(root, file), text); err != nil {
			return "", err
		}
	}
	lua, err := b.replaced(filepath.Join(embedded, "lua.go"), "_, _ = level, msg", "_ = level; noteLine(msg)")
	if err != nil {
		return "", err
	}
	return root, errors.Join(write(filepath.Join(memory, "lua.go"), lua),
		write(filepath.Join(memory, "noteline.go"), noteLine))
}

// write makes a file anew, because a copy of the module cache may not be written to.
func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// replaced returns the text of a file with some of its texts, each followed by the text in its place.
func (b *bench) replaced(file string, pairs ...string) ([]byte, error) {
	at := file
	if !filepath.IsAbs(file) {
		at = filepath.Join(b.root, file)
	}
	text, err := os.ReadFile(at)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(pairs); i += 2 {
		if !bytes.Contains(text, []byte(pairs[i])) {
			return nil, fmt.Errorf("%s has no %q any more", file, pairs[i])
		}
		text = bytes.ReplaceAll(text, []byte(pairs[i]), []byte(pairs[i+1]))
	}
	return text, nil
}
