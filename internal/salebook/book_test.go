package salebook_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/salebook"
	"github.com/redlatch/redlatch/rcounter/stock"
)

func TestRead_WrittenEntries_AreTheSame(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_123).UTC()
	want := []stock.Entry{
		{Serial: 1, Epoch: 7, Kind: "reserved", Item: "cap", ID: "a", User: "ann", Asked: 2, N: 2, At: at,
			Until: at.Add(time.Hour)},
		{Serial: 2, Epoch: 9, Kind: "void", ID: "b", Why: stock.Forbidden, At: at},
	}
	var text strings.Builder
	for _, e := range append(want, want[0]) { // one twice
		require.NoError(t, json.NewEncoder(&text).Encode(e))
	}
	var b salebook.Book
	require.NoError(t, b.Read(strings.NewReader(text.String())))
	require.Equal(t, want, b.All)
	next := stock.Entry{Serial: 3, Epoch: 8, Kind: "void", ID: "c", Why: stock.Forbidden, At: at}
	var added []stock.Entry
	b.Added = func(entries []stock.Entry) error { added = append(added, entries...); return nil }
	require.NoError(t, b.Move(context.Background(), []stock.Entry{want[1], next}))
	require.Equal(t, []stock.Entry{next}, added)
}

func TestRead_BadRecords_AreNamed(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		`{"serial":1,"kind":"void","id":"a"} {"serial":3,"kind":"void","id":"b"}`: "record 2: it has the serial 3",
		`{"serial":1,"kind":"void","id":"a"} {"serial":1,"kind":"void","id":"b"}`: "record 2: it has the serial 1",
		`{"serial":0}`:     "record 1: it has the serial 0",
		`{"claimant":"a"}`: `record 1: json: unknown field "claimant"`,
		`serial 1`:         "record 1: invalid character",
	} {
		require.ErrorContains(t, new(salebook.Book).Read(strings.NewReader(text)), says)
	}
}
