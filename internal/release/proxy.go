package main

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// proxy writes the release to a directory that GOPROXY=file://DIR serves. Other versions there stay.
func (r *release) proxy(to string) error {
	at, err := r.git(nil, "show", "--no-patch", "--format=%cI", "HEAD")
	if err != nil {
		return err
	}
	when, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{r.version, when.UTC()})
	if err != nil {
		return err
	}
	for _, d := range r.dirs {
		escaped, err := module.EscapePath(r.path(d))
		if err != nil {
			return err
		}
		v := filepath.Join(to, filepath.FromSlash(escaped), "@v")
		if err := os.MkdirAll(v, 0o755); err != nil {
			return err
		}
		mod, err := r.text(path.Join(d, "go.mod"))
		if err != nil {
			return err
		}
		if err := r.zip(d, filepath.Join(v, r.version+".zip")); err != nil {
			return err
		}
		for ext, text := range map[string]string{".mod": mod, ".info": string(info)} {
			if err := os.WriteFile(filepath.Join(v, r.version+ext), []byte(text), 0o644); err != nil {
				return err
			}
		}
		if err := list(v); err != nil {
			return err
		}
	}
	return nil
}

// list writes which versions of a module there are.
func list(v string) error {
	infos, err := filepath.Glob(filepath.Join(v, "*.info"))
	if err != nil {
		return err
	}
	for i, name := range infos {
		infos[i] = strings.TrimSuffix(filepath.Base(name), ".info")
	}
	semver.Sort(infos)
	return os.WriteFile(filepath.Join(v, "list"), []byte(strings.Join(infos, "\n")+"\n"), 0o644)
}
