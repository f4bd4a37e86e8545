// Package results is the file that bench/peers writes and bench/report reads: a CSV with one row for each measurement,
// after lines that say where, when and how it was measured.
package results

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Row is one measurement of one peer in one round. Numbers that were not taken are negative; a Note says why.
type Row struct {
	Workload  string `csv:"workload"`
	Processes int    `csv:"processes"`
	Workers   int    `csv:"workers"` // goroutines in all processes together
	Peer      string `csv:"peer"`
	Round     int    `csv:"round"`

	Seconds   float64 `csv:"seconds"` // that were measured
	Ops       int64   `csv:"ops"`
	OpsPerSec float64 `csv:"ops_per_s"`
	// Times of one operation in microseconds: lock and unlock where no other worker contends, otherwise from asking to
	// holding.
	P50 float64 `csv:"p50_us"`
	P99 float64 `csv:"p99_us"`
	Max float64 `csv:"max_us"`

	Jain     float64 `csv:"jain"` // 1: all workers got the same
	Least    int64   `csv:"least"`
	Most     int64   `csv:"most"`
	Commands float64 `csv:"commands_per_op"` // on the server, those inside scripts included
	Scripts  float64 `csv:"scripts_per_op"`
	CPU      float64 `csv:"server_cpu_us_per_op"`
	Conns    int64   `csv:"connections"` // beyond the harness's own

	Unfinished int64  `csv:"unfinished"` // workers still waiting at the end
	Overlaps   int64  `csv:"overlaps"`   // entries while another was inside
	Lost       int64  `csv:"lost"`       // what is missing from the counter under the lock
	Errors     int64  `csv:"errors"`
	Extra      string `csv:"extra"` // name=value pairs that only this workload has
	Note       string `csv:"note"`
}

// NotTaken is the value of a number that was not measured.
const NotTaken = -1

// Blank is a row of a measurement in which nothing has been taken yet.
func Blank(workload string, processes, workers int, peer string, round int) Row {
	return Row{
		Workload: workload, Processes: processes, Workers: workers, Peer: peer, Round: round,
		P50: NotTaken, P99: NotTaken, Max: NotTaken, Jain: NotTaken, Least: NotTaken, Most: NotTaken,
		Commands: NotTaken, Scripts: NotTaken, CPU: NotTaken, Conns: NotTaken, OpsPerSec: NotTaken,
	}
}

// Value returns a number from Extra.
func (r Row) Value(name string) (float64, bool) {
	for _, pair := range strings.Fields(r.Extra) {
		if k, v, ok := strings.Cut(pair, "="); ok && k == name {
			f, err := strconv.ParseFloat(v, 64)
			return f, err == nil
		}
	}
	return 0, false
}

// Fact is one line about the run: machine, date, a version.
type Fact struct{ Name, Value string }

// File is a whole run.
type File struct {
	Facts []Fact
	Rows  []Row
}

// Fact returns the value of the first fact of that name, "" if there is none.
func (f *File) Fact(name string) string {
	for _, x := range f.Facts {
		if x.Name == name {
			return x.Value
		}
	}
	return ""
}

// Write writes f as facts ("# name: value"), a header and the rows.
func (f *File) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, x := range f.Facts {
		if strings.ContainsAny(x.Name+x.Value, "\r\n") || strings.Contains(x.Name, ": ") {
			return fmt.Errorf("results: fact %q: %q is not one line", x.Name, x.Value)
		}
		fmt.Fprintf(b, "# %s: %s\n", x.Name, x.Value)
	}
	c := csv.NewWriter(b)
	c.Write(header())
	for _, r := range f.Rows {
		c.Write(fields(r))
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return err
	}
	return b.Flush()
}

// Save makes the file of that name, and its folder.
func (f *File) Save(name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	w, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := f.Write(w); err != nil {
		w.Close()
		return err
	}
	return w.Close()
}

// Read reads what Write wrote. Columns may stand in any order; an unknown or missing one is an error.
func Read(r io.Reader) (*File, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	f := &File{}
	body := string(text)
	for {
		line, rest, _ := strings.Cut(body, "\n")
		fact, ok := strings.CutPrefix(line, "# ")
		if !ok {
			break
		}
		name, value, ok := strings.Cut(fact, ": ")
		if !ok {
			return nil, fmt.Errorf("results: %q is not \"# name: value\"", line)
		}
		f.Facts, body = append(f.Facts, Fact{name, strings.TrimSuffix(value, "\r")}), rest
	}
	records, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("results: no header")
	}
	have := slices.Clone(records[0])
	slices.Sort(have)
	want := header()
	slices.Sort(want)
	if !slices.Equal(have, want) {
		return nil, fmt.Errorf("results: columns are %v, want %v", have, want)
	}
	for i, rec := range records[1:] {
		row, err := parse(records[0], rec)
		if err != nil {
			return nil, fmt.Errorf("results: row %d: %w", i+1, err)
		}
		f.Rows = append(f.Rows, row)
	}
	return f, nil
}

func header() []string {
	t := reflect.TypeFor[Row]()
	out := make([]string, t.NumField())
	for i := range out {
		out[i] = t.Field(i).Tag.Get("csv")
	}
	return out
}

func fields(r Row) []string {
	v := reflect.ValueOf(r)
	out := make([]string, v.NumField())
	for i := range out {
		switch x := v.Field(i).Interface().(type) {
		case float64:
			out[i] = strconv.FormatFloat(x, 'g', 5, 64)
		default:
			out[i] = fmt.Sprint(x)
		}
	}
	return out
}

func parse(names, values []string) (Row, error) {
	var r Row
	v := reflect.ValueOf(&r).Elem()
	for i, name := range names {
		field := v.FieldByIndex([]int{slices.Index(header(), name)})
		var err error
		switch field.Kind() {
		case reflect.String:
			field.SetString(values[i])
		case reflect.Float64:
			var x float64
			x, err = strconv.ParseFloat(values[i], 64)
			field.SetFloat(x)
		default:
			var x int64
			x, err = strconv.ParseInt(values[i], 10, 64)
			field.SetInt(x)
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}
