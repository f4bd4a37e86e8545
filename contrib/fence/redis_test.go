package redlatchfence_test

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestRedis_Rules(t *testing.T) {
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
		require.NoError(t, r.Del(ctx, "{a}:text", 34))
		require.Equal(t, "none", get("{a}:text"))
		require.ErrorIs(t, r.Set(ctx, "{a}:text", 33, "third"), redlatchfence.ErrStale, "the token stays")

		require.NoError(t, r.HSet(ctx, "hash", 33, map[string]string{"a": "1", "b": "2"}))
		require.NoError(t, r.Advance(ctx, "hash", 34))
		require.ErrorIs(t, r.HSet(ctx, "hash", 33, map[string]string{"a": "3"}), redlatchfence.ErrStale)
		fields, err := client.Do(ctx, client.B().Hgetall().Key("hash").Build()).AsStrMap()
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, fields)
		require.Equal(t, "34", get("redlatch_fence:{hash}"))
		ttl, err := client.Do(ctx, client.B().Ttl().Key("redlatch_fence:{hash}").Build()).AsInt64()
		require.NoError(t, err)
		require.EqualValues(t, -1, ttl, "the fence does not expire")

		require.NoError(t, client.Do(ctx, client.B().Set().Key("redlatch_fence:{hash2}").Value("text").Build()).Error())
		require.ErrorContains(t, r.Set(ctx, "hash2", 33, "x"), "holds no token")
		require.Equal(t, "none", get("hash2"))
	})
}

// (state, arguments) -> (reply, state), and the same once more.
func TestRedis_Script(t *testing.T) {
	text, err := os.ReadFile("lua/write.lua")
	require.NoError(t, err)
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		ctx := t.Context()
		do := func(words ...string) rueidis.RedisResult {
			return client.Do(ctx, client.B().Arbitrary(words...).Build())
		}
		for name, c := range map[string]struct {
			fence string
			args  string
			reply int64
			value string // of the key, "old" before
			after string // the fence
		}{
			"set":            {"", "33 SET new", 1, "new", "33"},
			"set_newer":      {"32", "33 SET new", 1, "new", "33"},
			"set_equal":      {"33", "33 SET new", 1, "new", "33"},
			"set_stale":      {"34", "33 SET new", 0, "old", "34"},
			"set_2_53":       {"9007199254740991", "9007199254740990 SET new", 0, "old", "9007199254740991"},
			"advance":        {"32", "33 ADVANCE", 1, "old", "33"},
			"advance_stale":  {"34", "33 ADVANCE", 0, "old", "34"},
			"del":            {"32", "33 DEL", 1, "", "33"},
			"del_stale":      {"34", "33 DEL", 0, "old", "34"},
			"hset_wrongtype": {"32", "33 HSET a b", -1, "old", "33"},
		} {
			t.Run(name, func(t *testing.T) {
				require.NoError(t, do("FLUSHALL").Error())
				require.NoError(t, do("SET", "{k}", "old").Error())
				if c.fence != "" {
					require.NoError(t, do("SET", "f{k}", c.fence).Error())
				}
				for range 2 {
					args := strings.Fields(c.args)
					keys := []string{"2", "f{k}", "{k}"}
					if args[1] == "ADVANCE" {
						keys = []string{"1", "f{k}"}
					}
					words := append(append([]string{"EVAL", string(text)}, keys...), args...)
					reply, err := do(words...).AsInt64()
					if c.reply < 0 {
						require.ErrorContains(t, err, "WRONGTYPE")
					} else {
						require.NoError(t, err)
						require.Equal(t, c.reply, reply)
					}
					value, _ := do("GET", "{k}").ToString()
					fence, _ := do("GET", "f{k}").ToString()
					require.Equal(t, [2]string{c.value, c.after}, [2]string{value, fence})
				}
			})
		}
	})
}

func TestRedis_BadArguments(t *testing.T) {
	ctx := t.Context()
	require.ErrorIs(t, redlatchfence.Redis{}.Advance(ctx, "a", 33), redlatchfence.ErrInvalid)
	r := redlatchfence.Redis{Client: redistest.Embedded(t).Client(t)}
	require.ErrorIs(t, r.HSet(ctx, "a", 33, nil), redlatchfence.ErrInvalid)
	for _, key := range []string{"a}b", "a{b", "{}a"} {
		require.ErrorIs(t, r.Advance(ctx, key, 33), redlatchfence.ErrInvalid, "it would be in another slot than its fence")
	}
}
