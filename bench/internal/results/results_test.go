package results_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/bench/internal/results"
	"github.com/stretchr/testify/require"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	row := results.Blank("contended", 8, 64, "redlatch", 2)
	row.Ops, row.OpsPerSec, row.P99, row.Extra, row.Note = 1234, 12345, 0.25, "heap_per_lock=512 goroutines=7",
		"a, \"quoted\" note"
	f := results.File{Facts: []results.Fact{{Name: "machine", Value: "2 x EPYC: fast"},
		{Name: "date", Value: "2026-01-02"}}, Rows: []results.Row{row, row}}
	var b bytes.Buffer
	require.NoError(t, f.Write(&b))
	got, err := results.Read(&b)
	require.NoError(t, err)
	require.Equal(t, f, *got)
	require.Equal(t, "2 x EPYC: fast", got.Fact("machine"))
	v, ok := got.Rows[0].Value("heap_per_lock")
	require.True(t, ok)
	require.EqualValues(t, 512, v)
	_, ok = got.Rows[0].Value("heap")
	require.False(t, ok)
}

func TestAFileOfAnotherShapeIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"empty":          "",
		"no header":      "# a: b\n",
		"another column": "workload,colour\n",
		"a bad fact":     "# nothing\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := results.Read(strings.NewReader(text))
			require.ErrorContains(t, err, "results:")
		})
	}
	require.Error(t, (&results.File{Facts: []results.Fact{{Name: "a", Value: "two\nlines"}}}).Write(&bytes.Buffer{}))
}

func TestANumberThatIsNoneIsRefused(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, (&results.File{Rows: []results.Row{results.Blank("x", 1, 1, "p", 1)}}).Write(&b))
	_, err := results.Read(strings.NewReader(strings.Replace(b.String(), "x,1,1,p", "x,one,1,p", 1)))
	require.ErrorContains(t, err, "processes")
}
