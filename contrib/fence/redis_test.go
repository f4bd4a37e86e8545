package redlatchfence_test

import (
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestRedis_AnyTokens_ObeyTheGuardRules(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		r := redlatchfence.Redis{Client: client}
		rules(t, r, resource)
		ctx := t.Context()
		get := func(key string) string {
			text, err := client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
			if rueidis.IsRedisNil(err) {
				return "none"
			}
			require.NoError(t, err)
			return text
		}
		require.NoError(t, r.Set(ctx, "{a}:text", 33, "first"))
		require.NoError(t, r.Set(ctx, "{a}:text", 34, "second"))
		require.ErrorIs(t, r.Set(ctx, "{a}:text", 33, "third"), redlatchfence.ErrStale)
		require.ErrorIs(t, r.Del(ctx, "{a}:text", 33), redlatchfence.ErrStale)
		require.Equal(t, "second", get("{a}:text"))
		require.Equal(t, "34", get("redlatch_fence:{a}:text"))
		require.ErrorContains(t, r.HSet(ctx, "{a}:text", 35, map[string]string{"a": "b"}), "WRONGTYPE")
		require.ErrorIs(t, r.Set(ctx, "{a}:text", 34, "third"), redlatchfence.ErrStale, "35 is seen, though it failed")
		require.NoError(t, r.Del(ctx, "{a}:text", 35))
		require.NoError(t, r.Del(ctx, "{a}:text", 35), "a second run")
		require.Equal(t, "none", get("{a}:text"))
		require.ErrorIs(t, r.Set(ctx, "{a}:text", 33, "third"), redlatchfence.ErrStale, "the token stays")

		require.NoError(t, r.HSet(ctx, "hash", 33, map[string]string{"a": "1", "b": "2"}))
		require.NoError(t, r.Advance(ctx, "hash", 34))
		require.ErrorIs(t, r.HSet(ctx, "hash", 33, map[string]string{"a": "3"}), redlatchfence.ErrStale)
		fields := redistest.NoError(client.Do(ctx, client.B().Hgetall().Key("hash").Build()).AsStrMap())(t)
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, fields)
		require.Equal(t, "34", get("redlatch_fence:{hash}"))
		ttl := redistest.NoError(client.Do(ctx, client.B().Ttl().Key("redlatch_fence:{hash}").Build()).AsInt64())(t)
		require.EqualValues(t, -1, ttl, "the fence does not expire")

		require.NoError(t, client.Do(ctx, client.B().Set().Key("redlatch_fence:{hash2}").Value("text").Build()).Error())
		require.ErrorContains(t, r.Set(ctx, "hash2", 33, "x"), "holds no token")
		require.Equal(t, "none", get("hash2"))
	})
}

func TestRedis_BadArguments_AreRefused(t *testing.T) {
	ctx := t.Context()
	require.ErrorIs(t, redlatchfence.Redis{}.Advance(ctx, "a", 33), redlatchfence.ErrInvalid)
	r := redlatchfence.Redis{Client: redistest.Embedded(t).Client(t)}
	require.ErrorIs(t, r.HSet(ctx, "a", 33, nil), redlatchfence.ErrInvalid)
	for _, key := range []string{"a}b", "a{b", "{}a"} {
		require.ErrorIs(t, r.Advance(ctx, key, 33), redlatchfence.ErrInvalid, "it would be in another slot than its fence")
	}
}
