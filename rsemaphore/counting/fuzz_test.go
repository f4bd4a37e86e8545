package counting

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// What no script replies grants no permit.
func FuzzReplies(f *testing.F) {
	for _, reply := range []string{"*\n:1\n:1700000000000\n.", "*\n:0\n:1\n:2\n.", "*\n$1\n$2\n.", ":1", "_"} {
		f.Add(reply)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, message := &Semaphore{key: "permits"}, redistest.Reply(text)
		if reply, err := s.decodeTake(message); err == nil && reply.status == statusOK {
			list, err := message.ToArray()
			require.NoError(t, err)
			require.Len(t, list, 2)
		}
		_, _ = s.number(message)
	})
}
