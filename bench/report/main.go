// Command report turns the CSV of bench/peers into charts and docs/benchmarks.md:
//
//	go run ./bench/report                                   # from docs/benchmarks/results.csv
//	go run ./bench/report -in bench/peers/out/results.csv -out /tmp/look
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/redlatch/redlatch/bench/internal/results"
)

func main() {
	in := flag.String("in", filepath.Join("docs", "benchmarks", "results.csv"), "the CSV to read")
	out := flag.String("out", "docs", "where benchmarks.md and the folder benchmarks with the charts go")
	flag.Parse()
	if err := report(*in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func report(in, out string) error {
	r, err := os.Open(in)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := results.Read(r)
	if err != nil {
		return err
	}
	if len(f.Rows) == 0 {
		return fmt.Errorf("%s has no rows", in)
	}
	text, charts := document(summarise(f))
	dir := filepath.Join(out, "benchmarks")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name, svg := range charts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(svg), 0o666); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(out, "benchmarks.md"), []byte(text), 0o666)
}
