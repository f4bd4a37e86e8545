package main

import (
	"archive/zip"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Two versions at once: half of the clients are this program as it was at another commit. Each client sends its own
// scripts, so the versions share nothing but what is on the servers.

// pinned is the commit with which the checkout has to share servers: that of the last tag, and until there is one the
// first commit whose layouts later versions must read.
//
//go:embed PINNED
var pinned string

// errNoCommit: git has no such commit here.
var errNoCommit = errors.New("no such commit; a shallow clone needs: git fetch --unshallow")

// programOf returns this program as it was at a commit, which is built once; or what is named, if that is a file.
func programOf(ctx context.Context, named string) (string, error) {
	if named == "pinned" {
		named = strings.TrimSpace(pinned)
	}
	if info, err := os.Stat(named); err == nil && info.Mode().IsRegular() {
		return filepath.Abs(named)
	}
	root, err := output(ctx, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", errNoCommit, named, err)
	}
	commit, err := output(ctx, "git", "rev-parse", "--verify", "--end-of-options", named+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", errNoCommit, named, err)
	}
	program := filepath.Join(root, "bin", "old", "chaos-"+commit)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	dir, err := os.MkdirTemp("", "chaos-old")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	return program, buildAt(ctx, root, commit, dir, program)
}

// buildAt builds this program as it was at a commit. dir is for the files of the commit: outside the repository, whose
// checks read every file.
func buildAt(ctx context.Context, root, commit, dir, program string) error {
	archive, source := filepath.Join(dir, "files.zip"), filepath.Join(dir, "source")
	if _, err := output(ctx, "git", "-C", root, "archive", "--format=zip", "-o", archive, commit); err != nil {
		return err
	}
	files, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer files.Close()
	if err := os.CopyFS(source, files); err != nil {
		return err
	}
	built := program + "." + strconv.Itoa(os.Getpid()) // another process may build it, too
	if _, err := output(ctx, "go", "-C", filepath.Join(source, "proof"), "build", "-o", built, "./chaos"); err != nil {
		return err
	}
	return os.Rename(built, program)
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %.2000s", name, strings.Join(args, " "), err, &said)
	}
	return strings.TrimSpace(string(out)), nil
}
