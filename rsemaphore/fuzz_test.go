package rsemaphore

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
)

// What no script replies grants no permit, and neither opens a latch nor trips a barrier.
func FuzzReplies(f *testing.F) {
	for _, reply := range []string{
		":1700000000000", "*\n:1\n:1700000000000\n:4\n:-1\n:-1\n:0\n:-1\n:7\n.", "*\n:2\n:1700000000000\n:4\n:5\n:-1\n:1\n.",
		"*\n:1\n:1700000000000\n:4\n:-1\n:20\n:0\n:-1\n:30000\n$0123456789abc\n.", "*\n:2\n:-1\n:30000\n$0123456789abc\n.",
		"*\n:1700000000000\n$4\n:1\n$0123456789abcdef\n:1700000030000\n$1 label\n.", "*\n:1700000000000\n$\n:0\n.",
		"*\n$0123456789abc\n:0\n$0123456789abc\n:1\n.", "*\n:1\n:3\n:-1\n$mark\n$0000\n.", "*\n:1\n:0\n.",
		"*\n:1\n$id\n:4\n:2\n:30000\n:1700000000000\n:3\n.", "*\n:1\n:9223372036854775807\n.", "_", "-ERR no", "*\n.",
	} {
		f.Add(reply, uint8(1))
	}
	conn, err := rueidis.NewClient(redistest.Embedded(f).Option())
	require.NoError(f, err)
	f.Cleanup(conn.Close)
	c, err := New(rig.Hub(f, conn), Options{})
	require.NoError(f, err)
	s, party := c.Semaphore("semaphore", 4), &barrierParty{barrier: c.CyclicBarrier("barrier", 2)}
	f.Fuzz(func(t *testing.T, text string, requests uint8) {
		message := redistest.Reply(text)
		if reply, err := s.decodeAcquire(message, int(requests)); err == nil {
			requireServed(t, reply.served)
			require.GreaterOrEqual(t, reply.left, time.Duration(-1))
			for i := range int(requests) {
				if reply.of(i) == askedGranted {
					require.True(t, message.IsInt64() || message.IsArray(), text)
				}
			}
		}
		if reply, err := s.decodeRelease(message); err == nil {
			requireServed(t, reply.served)
		}
		if reply, err := s.decodeResize(message); err == nil {
			requireServed(t, reply.served)
		}
		if state, err := s.decodeState(message); err == nil {
			for _, permit := range state.Permits {
				require.GreaterOrEqual(t, permit.Lease, time.Duration(-1))
			}
		}
		var reply latchReply
		if err := read(message, "read", "latch", &reply.status, &reply.count, &reply.ttlLeft, &reply.mark,
			&reply.openingMessage); err == nil {
			require.GreaterOrEqual(t, reply.ttlLeft, time.Duration(-1))
		}
		var done bool
		if err := read(message, "set", "latch", &done); err != nil {
			require.False(t, done)
		}
		if reply, err := s.decodeHolders(message); err == nil {
			for base := range reply.numbers {
				require.Len(t, base, baseSize)
				require.NotPanics(t, func() { idClient(idOf(base, 0)) })
			}
		}
		if reply, err := party.decode(message); err == nil {
			require.GreaterOrEqual(t, reply.leaseLeft, time.Duration(-1))
		}
	})
}

func requireServed(t *testing.T, reply served) {
	t.Helper()
	require.GreaterOrEqual(t, reply.dueIn, time.Duration(-1))
}
