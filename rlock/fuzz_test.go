package rlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// What no script replies grants and releases nothing.
func FuzzReplies(f *testing.F) {
	for _, reply := range []string{
		":1700000000000", "*\n:1\n:30000\n:1700000000000\n:1\n:0\n:17\n.", "*\n:0\n:-1\n:1700000000000\n:3\n:1\n.",
		"*\n*\n:1\n:30000\n:1700000000000\n:1\n:0\n.\n*\n:0\n:5\n:1700000000000\n:1\n:0\n.\n.", "*\n:1\n:7\n:-1\n.",
		"*\n:30000\n:1\n*\n$a:1\n$1\n.\n*\n$1 x 1 1 1 0 p - r\n$1e15\n.\n*\n$a\n$NaN\n.\n*\n.\n:0\n*\n.\n.",
		"$1", "_", "-ERR no", "*\n.",
	} {
		f.Add(reply, uint8(2))
	}
	f.Fuzz(func(t *testing.T, text string, owners uint8) {
		message := redistest.Reply(text)
		ints, notInts := message.AsIntSlice()
		if reply, err := decodeAcquire(message); err == nil && reply.status == acquireGranted && !message.IsInt64() {
			require.NoError(t, notInts)
			require.EqualValues(t, acquireGranted, ints[0])
		}
		if reply, err := decodeAcquire(message); err == nil && !message.IsInt64() {
			require.Equal(t, ints[1] < 0, reply.leaseLeft < 0, "of %d ms", ints[1])
		}
		if all, err := decodeFair(message, int(owners)); err == nil && all.replies[0].status != acquireLate {
			require.Len(t, all.replies, int(owners))
		}
		_, err := decodeRelease(message, true)
		require.Equal(t, err == nil, notInts == nil && len(ints) == 3)
		_, _ = decodeRelease(message, false)
		if state, err := decodeInspect(message); err == nil && state.locked {
			require.True(t, state.leaseLeft == noEnd || state.leaseLeft > -time.Second, state.leaseLeft)
		}
	})
}

// The label of an owner of other software is not made up.
func FuzzOwner(f *testing.F) {
	f.Add("0b5fa6a0-3a4b-8c00-9d1e-2f3a4b5c6d7e:1:a%20label")
	f.Add("0b5fa6a0-3a4b-4c00-9d1e-2f3a4b5c6d7e:1:none")
	f.Add("0b5fa6a0-3a4b-8c00-9d1e-2f3a4b5c6d7e:1:%zz")
	f.Fuzz(func(t *testing.T, owner string) {
		if label := Owner(owner).Label(); !Owner(owner).ours() {
			require.Empty(t, label)
		}
	})
}
