package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// loader is the file by which all scripts of the library are loaded.
const loader = "internal/script/lua.go"

// planting are the texts with which a program plants in a script what the environment says, when it loads that script.
func planting(root string) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, loader))
	if err != nil {
		return nil, err
	}
	for old, now := range map[string]string{"fs.ReadFile(files, ": "planted(files, ",
		"libraries.ReadFile(": "planted(libraries, "} {
		if !bytes.Contains(text, []byte(old)) {
			return nil, fmt.Errorf("%s reads no script by %s any more", loader, old)
		}
		text = bytes.ReplaceAll(text, []byte(old), []byte(now))
	}
	return map[string][]byte{loader: text, "internal/script/planted.go": []byte(plantedText)}, nil
}

const plantedText = `package script

import (
	"bytes"
	"io/fs"
	"os"
)

func planted(files fs.FS, name string) ([]byte, error) {
	text, err := fs.ReadFile(files, name)
	if old := os.Getenv("REDLATCH_MUTANT_OLD"); err == nil && name == os.Getenv("REDLATCH_MUTANT_FILE") {
		text = bytes.Replace(text, []byte(old), []byte(os.Getenv("REDLATCH_MUTANT_NEW")), 1)
	}
	return text, err
}
`
