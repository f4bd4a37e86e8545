package rlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// The fields of a record, in words.
func TestBlockedRecord_AnyText_IsReadOrRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 5 2500 id owner a":         "5 2.5s id [{a owner}]",
		"1 5 2500 id o1 a o2 b%20%7D": "5 2.5s id [{a o1} {b } o2}]",
		"9 5 2500 id owner a more":    "5 2.5s id [{a owner}]", // of a later version
		"":                            "",
		"1 5 2500 id":                 "",
		"1 x 2500 id owner a":         "",
		"1 5 x id owner a":            "",
		"1 5 2500 id owner %zz":       "",
	} {
		require.Equal(t, want, rlock.ReadBlocked(text), text)
	}
	own := "1 5 2500 id owner a+b%2F%C3%A4"
	require.Equal(t, own, rlock.BlockedAgain(own))
}

// searched runs a search on the server for a caller that holds a and waits for b. record is that of another call, which
// waits for a, holds b as an owner of b, and wrote its record so long ago.
func searched(t *testing.T, ownerOfB string, ago time.Duration, began int64) (found bool) {
	t.Helper()
	bubble(t, 1, rlock.Options{}, func(t *testing.T, _ *redistest.Server, rigs []*rig) {
		ctx, r := context.Background(), rigs[0]
		a, b := lock(t, r.locks.Reentrant("a"), ctx), lock(t, r.locks.Reentrant("b"), ctx)
		if ownerOfB == "" {
			ownerOfB = string(b.Owner())
		}
		now := time.Now().UnixMilli()
		record := fmt.Sprintf("1 %d 2500 other %s b", began, ownerOfB)
		require.NoError(t, r.redis.Do(ctx, r.redis.B().Zadd().Key("redlatch_blocked:{a}").ScoreMember().
			ScoreMember(float64(now-ago.Milliseconds()), record).Build()).Error())
		found = r.locks.Search(ctx, "b", "a", string(a.Owner()), 100)
		letGo(a)
		letGo(b)
	})
	return found
}

func TestSearch_OlderCallHoldsAndWaits_IsACircle(t *testing.T) {
	t.Parallel()
	require.True(t, searched(t, "", 0, 99))
}

func TestSearch_YoungerCall_IsNoCircle(t *testing.T) {
	t.Parallel()
	require.False(t, searched(t, "", 0, 101), "the other call finds it")
}

func TestSearch_OwnerDoesNotHold_IsNoCircle(t *testing.T) {
	t.Parallel()
	require.False(t, searched(t, "0f8b3c52-5a1e-8c61-9d0a-6f4f3a2b1c0d:1", 0, 99))
}

func TestSearch_RecordIsStale_IsNoCircle(t *testing.T) {
	t.Parallel()
	require.True(t, searched(t, "", 2500*time.Millisecond, 99))
	require.False(t, searched(t, "", 2501*time.Millisecond, 99))
}
