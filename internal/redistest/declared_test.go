package redistest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestEmbedded_UndeclaredKey_IsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Embedded(t)
	c := server.Client(t)
	for _, text := range []string{
		"return redis.call('GET', KEYS[1] .. ':x')", "return redis.call('GET', ARGV[1])", "return redis.call('GET', 'x')",
		"return redis.call('DEL', KEYS[1], ARGV[1])", "return redis.call('EXISTS', unpack(ARGV))",
		"redis.pcall('SET', ARGV[1], '1') return 'not noticed'",
	} {
		said(c, time.Minute, "EVAL", text, "1", "key", "other")
		require.Len(t, redistest.Refused(server), 1, text)
		said(c, time.Minute, "EVAL", redistest.Undeclared+text, "1", "key", "other")
		require.Empty(t, redistest.Refused(server), text)
	}
	for _, text := range []string{
		"return tostring(redis.call('GET', KEYS[1]))", "return redis.call('UNLINK', unpack(KEYS)) .. ''",
		"return redis.call('PUBLISH', ARGV[1], 'x') .. ''", "return redis.call('TIME')[1]",
	} {
		require.NotContains(t, said(c, time.Minute, "EVAL", text, "1", "key", "channel"), "ERR", text)
	}
	require.Equal(t, []string{"GET", "PUBSUB|NUMSUB"}, redistest.ScriptCommands(
		"redis.pcall('PUBSUB', 'NUMSUB', ARGV[1])\nredis.call(\n 'GET', KEYS[1])\nredis.call('GET', KEYS[2])"))
}
