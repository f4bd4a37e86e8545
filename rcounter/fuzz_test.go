package rcounter

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// What no script replies is no sum.
func FuzzReplies(f *testing.F) {
	for _, reply := range []string{"*\n:0\n$12\n.", "*\n:2\n$text\n.", "*\n:0\n$012\n.", "*\n$0\n$1\n:2\n.", "_", ":1"} {
		f.Add(reply)
	}
	f.Fuzz(func(t *testing.T, text string) {
		code, raw, ok := codeAndText(redistest.Reply(text))
		if !ok {
			return
		}
		if reply, err := newAddReply(code, raw, "key"); err == nil && code != addNotInteger {
			require.Equal(t, raw, strconv.FormatInt(reply.value, 10))
		}
	})
}
