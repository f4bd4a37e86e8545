package script_test

import (
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

func lua(files map[string]string) fs.FS {
	m := fstest.MapFS{}
	for name, text := range files {
		m["lua/"+name+".lua"] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func TestCompose_Libraries_HasWhatIsUsed(t *testing.T) {
	files := lua(map[string]string{
		"lib/b": "-- uses: a\n-- B.\n\n-- why\nlocal function two()\n  return one() + LOW\nend\nlocal function four() " +
			"return 4 end\n",
		"lib/a": "-- A.\n\nlocal LOW, HIGH = 1,\n  2\nlocal function one() -- four()\n  return 'three()'\nend\nlocal " +
			"function three()\n  return 3\nend\n",
		"plain": "-- Header.\nreturn x.four()\n",
		"uses":  "-- Header.\n-- uses: b\n-- More.\nreturn 1 ..two()\n",
		"fast":  "-- uses: b\n\nif KEYS[1] then\n  return four\nend\n-- libraries\nreturn two()\n",
		"time":  "-- uses: clock\nreturn clock()",
		"bare":  "-- uses: a\n-- libraries\nreturn one()\n",
		"lib/c": "-- uses: b\nlocal function five() return one() end\nlocal function rare(x)\n  if x then return one() " +
			"end\n-- libraries\n  return two() + five()\nend\n" +
			"local function often() return one() end\n",
		"needs": "-- uses: c\nreturn often() + rare()\n",
		"often": "-- uses: c\nreturn five() + rare()\n",
	})
	low := "local LOW, HIGH = 1,\n  2\n"
	a := low + "local function one() -- four()\n  return 'three()'\nend\n"
	b := "local function two()\n  return one() + LOW\nend\n"
	for name, want := range map[string]string{
		"plain": "-- Header.\nreturn x.four()\n",
		"uses":  "-- Header.\n-- uses: b\n-- More.\n" + a + b + "return 1 ..two()\n",
		"fast":  "-- uses: b\n\nif KEYS[1] then\n  return four\nend\n" + a + b + "return two()\n",
		"bare":  "-- uses: a\n" + strings.TrimPrefix(a, low) + "return one()\n",
		"needs": "-- uses: c\n" + strings.TrimPrefix(a, low) + "local function rare(x)\n  if x then return one() end\n" +
			low + b +
			"local function five() return one() end\n  return two() + five()\nend\nlocal function often() return one() " +
			"end\nreturn often() + rare()\n",
		"often": "-- uses: c\n" + strings.TrimPrefix(a, low) +
			"local function five() return one() end\nlocal function rare(x)\n  if x then return one() end\n" +
			low + b + "  return two() + five()\nend\nreturn five() + rare()\n",
	} {
		got := redistest.NoError(script.Compose(files, name))(t)
		require.Equal(t, want, got, name)
	}
	got := redistest.NoError(script.Compose(files, "time"))(t)
	require.Contains(t, got, "redis.call('TIME')")
}

func TestCompose_BadLayout_IsRefused(t *testing.T) {
	for text, why := range map[string]string{
		"local x = 1\nredis.call('SET', KEYS[1], x)\n": `"redis.call('SET', KEYS[1], x)" in the first column`,
		"  return 1\n":         `"return 1" in the first column`,
		"-- uses: none\n":      "lib.lua uses none",
		"-- uses: clock,lib\n": "lib.lua uses clock,lib",
	} {
		_, err := script.Compose(lua(map[string]string{"s": "-- uses: lib\nreturn 1\n", "lib/lib": text}), "s")
		require.ErrorContains(t, err, why)
	}
	require.Panics(t, func() { script.Load("s", lua(nil), "s") })
}

// opened counts how often files are opened.
type opened struct {
	fs.FS
	times atomic.Int64
}

func (o *opened) Open(name string) (fs.File, error) {
	o.times.Add(1)
	return o.FS.Open(name)
}

func TestLoad_ManyCalls_PutsTogetherOnce(t *testing.T) {
	files := &opened{FS: lua(map[string]string{
		"s":       "-- uses: lib\nreturn one()\n",
		"lib/lib": "local function one() return 1 end\n",
	})}
	s := script.Load("s", files, "s")
	atLoad := files.times.Load()
	require.LessOrEqual(t, atLoad, int64(1), "only whether the file is there")
	server := redistest.Embedded(t)
	r := script.NewRunner(server.Client(t), slack)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			m, err := r.Do(within(t), script.Call{Script: s, Keys: []string{"k"}})
			assert.NoError(t, err)
			n, err := m.AsInt64()
			assert.NoError(t, err)
			assert.EqualValues(t, 1, n)
		})
	}
	calls.Wait()
	require.EqualValues(t, 2, files.times.Load()-atLoad, "the script and its library")
}
