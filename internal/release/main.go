// Command release makes a release of all modules that are published: the root, and those directly in contrib and cmd.
//
//	go -C internal/release run . -proxy DIR v0.1.0   # writes the files of a module proxy, from the checkout as it is
//	go -C internal/release run . -tag v0.1.0         # prints the tags that it would make
//	go -C internal/release run . -tag -write v0.1.0  # makes them; it never pushes
//
// In the checkout a nested module requires version v0.0.0 of the root, and replaces it by the directory, so that a
// change of both is one commit. A release drops the replace directives, and requires the version of the release.
// RELEASING.md has the steps around it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if err := run(".", os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run carries out a command in a directory of the checkout.
func run(dir string, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	proxy := flags.String("proxy", "", "write a module proxy to this `directory`")
	tag := flags.Bool("tag", false, "print the tags of the release")
	write := flags.Bool("write", false, "with -tag: make the tags")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *tag == (*proxy != "") || *write && !*tag {
		return errors.New("usage: release -proxy DIR VERSION, or release -tag [-write] VERSION")
	}
	r, err := prepare(dir, flags.Arg(0))
	if err != nil {
		return err
	}
	defer r.close()
	if *tag {
		return r.tag(*write, out)
	}
	to, err := filepath.Abs(*proxy)
	if err != nil {
		return err
	}
	return r.proxy(to)
}
