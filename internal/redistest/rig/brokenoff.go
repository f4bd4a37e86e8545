package rig

import (
	"fmt"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// breakOff stands before a script that is to break off before one of its writes.
const breakOff = `local real, left = redis, %d
local writes = {HSET = 1, HDEL = 1, HINCRBY = 1, SET = 1, DEL = 1, UNLINK = 1, PEXPIRE = 1, ZADD = 1, ZREM = 1,
  RPUSH = 1, LPOP = 1, XADD = 1, XTRIM = 1}
local redis = {error_reply = real.error_reply, call = function(...)
  if writes[({...})[1]] then
    if left == 0 then error('broken off') end
    left = left - 1
  end
  return real.call(...)
end}
`

// BrokenOff runs a script that breaks off before its write with the number k, counted from 0, and reports whether the
// script ran whole because it has fewer. A server that stops, or that is out of memory, breaks a run off like that.
func BrokenOff(t testing.TB, c rueidis.Client, k int, script string, keys, args []string) (whole bool) {
	t.Helper()
	err := c.Do(ctx, c.B().Eval().Script(fmt.Sprintf(breakOff, k)+script).Numkeys(int64(len(keys))).Key(keys...).
		Arg(args...).Build()).Error()
	if err != nil {
		require.ErrorContains(t, err, "broken off")
	}
	return err == nil
}
