// Command report turns the CSV of bench/peers into docs/benchmarks.md, and the charts and tables of docs/benchmarks:
//
//	go -C bench run ./report                                   # from docs/benchmarks/results.csv
//	go -C bench run ./report -in peers/out/results.csv -out /tmp/look
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/redlatch/redlatch/bench/internal/results"
)

func main() {
	in := flag.String("in", filepath.Join("..", "docs", "benchmarks", "results.csv"), "the CSV to read")
	out := flag.String("out", filepath.Join("..", "docs"),
		"where benchmarks.md and the folder benchmarks with charts and tables go")
	flag.Parse()
	if err := report(*in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func report(in, out string) error {
	f, err := load(in)
	if err != nil {
		return err
	}
	s := summarise(f)
	for name, to := range map[string]**summary{redissonFile: &s.redisson, scaleFile: &s.scale, placesFile: &s.places,
		processorFile: &s.onOne} {
		other, err := load(filepath.Join(filepath.Dir(in), name))
		switch {
		case err == nil:
			*to = summarise(other)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	for name, text := range document(s) {
		name = filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// Besides the main run there may be others: the one in which Redisson takes part, bench/scale's and bench/places', and
// the one on one processor.
const (
	redissonFile = "redisson.csv"
	scaleFile    = "scale.csv"
	placesFile   = "places.csv"

	processorFile = "processor.csv"
)

func load(name string) (*results.File, error) {
	r, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, err := results.Read(r)
	if err == nil && len(f.Rows) == 0 {
		err = fmt.Errorf("%s has no rows", name)
	}
	return f, err
}
