package rig

import (
	"context"
	_ "embed" // the scripts
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/counted.lua
var countedText string

// Heard is put before the text of a script: all processes listen for grants then, and are sent what is published.
const Heard = `local redis = (function(server)
  local function hearing(how)
    return function(name, ...)
      if string.find(name, 'PUBLISH$') then return 1 end
      local sub, channel = ...
      if name == 'PUBSUB' and string.find(channel, 'grant') then return {channel, 1} end
      return server[how](name, ...)
    end
  end
  return {call = hearing('call'), pcall = hearing('pcall'), error_reply = server.error_reply,
    status_reply = server.status_reply, sha1hex = server.sha1hex}
end)(redis)
`

// Touched runs the text of a script and returns how many records each of its commands touched, in all calls of that
// command; and how long the script took, from the SLOWLOG of a real server. What the script replies is not looked at:
// err is its error.
func Touched(t testing.TB, c rueidis.Client, text string, keys, args []string) (n map[string]int64,
	took time.Duration, err error) {
	t.Helper()
	const count = "{touched}"
	require.NoError(t, Raw(c, "DEL", count).Error())
	slowlog := Raw(c, "SLOWLOG", "RESET").Error() == nil
	words := append([]string{"EVAL", countedText + text, strconv.Itoa(len(keys))}, keys...)
	err = c.Do(context.Background(), c.B().Arbitrary(append(words, args...)...).Build()).Error()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	if slowlog {
		if all, bad := Raw(c, "SLOWLOG", "GET", "1").ToArray(); bad == nil && len(all) > 0 {
			entry, bad := all[0].ToArray()
			require.NoError(t, bad)
			us, bad := entry[2].AsInt64()
			require.NoError(t, bad)
			took = time.Duration(us) * time.Microsecond
		}
	}
	n, bad := Raw(c, "HGETALL", count).AsIntMap()
	require.NoError(t, bad)
	return n, took, err
}
