package ratelimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A limit that is read is one that a program may set, and is written as it was understood.
func FuzzStoredLimit(f *testing.F) {
	for _, text := range []string{
		"", "g,100,1000000,100;1700000000000;bob", "s,5,60000000,;1;", "f,10,d,Europe/Berlin;1700000000000;a;b",
		"f,10,d,../../etc/passwd;1;", "g,0,0,0;1;x", "g,1,9223372036854775807,9223372036854775807;1;",
		"g,9223372036854775807,1,1;1;",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kept, err := readKept(text)
		if err != nil || kept.terms == nil {
			return
		}
		terms := kept.terms
		require.Positive(t, terms.rate)
		require.Positive(t, terms.per)
		require.Positive(t, terms.window())
		require.Len(t, terms.args(nil), len(terms.words))
		again, err := readTerms(terms.words[0] + "," + terms.words[1] + "," + terms.words[2] + "," + terms.words[3])
		require.NoError(t, err)
		require.True(t, terms.same(again))
		if terms.algorithm == FixedWindow {
			require.NotEqual(t, time.Local.String(), terms.zone.String(), "each process would have windows of its own")
		}
	})
}
