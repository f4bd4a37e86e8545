package redistest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestReply_Text_DescribesIt(t *testing.T) {
	t.Parallel()
	for text, said := range map[string]any{
		":12":                      int64(12),
		":9223372036854775808":     int64(1<<63 - 1),
		"$some text":               "some text",
		"*\n:1\n*\n$a\n.\n:2":      []any{int64(1), []any{"a"}, int64(2)},
		"%\n$field\n:1\n.":         map[string]any{"field": int64(1)},
		"*\n:1\n":                  []any{int64(1), any(nil)},
		"*\nwhatever else\n.\n:12": []any{any(nil)},
	} {
		reply := redistest.Reply(text)
		got := redistest.NoError(reply.ToAny())(t)
		if list, ok := got.([]any); ok { // rueidis leaves an error in place of a null
			for i := range list {
				if _, failed := list[i].(error); failed {
					list[i] = nil
				}
			}
		}
		require.Equal(t, said, got, text)
	}
	failed := redistest.Reply("-ERR no")
	require.EqualError(t, failed.Error(), "no")
	empty := redistest.Reply("")
	require.True(t, empty.IsNil())
}
