package rlock_test

import (
	"slices"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
)

const (
	alice = "0f8b3c52-5a1e-8c61-9d0a-6f4f3a2b1c0d:1"
	bob   = "1a2b3c4d-5a1e-8c61-9d0a-6f4f3a2b1c0d:7"
	java  = "9c1d2e3f-0a4b-4c5d-8e6f-7a8b9c0d1e2f:42" // Redisson: a UUID of version 4 and a thread's id
)

// scriptRig sends scripts by hand.
type scriptRig struct {
	c rueidis.Client
}

func newScriptRig(t *testing.T, s *redistest.Server) *scriptRig {
	t.Helper()
	return &scriptRig{c: s.Client(t)}
}

func (g *scriptRig) do(_ *testing.T, args ...string) rueidis.RedisResult {
	return wire.Raw(g.c, args...)
}

func (g *scriptRig) must(t *testing.T, args ...string) {
	t.Helper()
	wire.Must(t, g.c, args...)
}

func (g *scriptRig) run(t *testing.T, name string, keys []string, args ...string) ([]int64, error) {
	t.Helper()
	return eval(t, g.c, source(t, name), keys, args...)
}

func eval(t *testing.T, c rueidis.Client, src string, keys []string, args ...string) ([]int64, error) {
	t.Helper()
	m, err := c.Do(within(t),
		c.B().Eval().Script(src).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToMessage()
	if err != nil {
		return nil, err
	}
	if v, err := m.AsInt64(); err == nil {
		return []int64{v}, nil
	}
	return m.AsIntSlice()
}

// limited is a client of a user with these rules after all commands and keys.
func (g *scriptRig) limited(t *testing.T, s *redistest.Server, rules ...string) rueidis.Client {
	t.Helper()
	g.must(t, append([]string{"ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all"}, rules...)...)
	o := s.Option()
	o.Username, o.Password = "limited", "secret"
	c, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func (g *scriptRig) now(t *testing.T) int64 { return wire.ServerNow(t, g.c) }

// What no client sends would leave a lock without an end, or one that nobody can release: it is refused before anything
// is done, on a free lock and on one that is held.
func TestScripts_ArgumentsNoClientSends_AreRefused(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := newScriptRig(t, s)
		const queue, timeouts, ends = "redisson_lock_queue:{l}", "redisson_lock_timeout:{l}", "redlatch_rw:{l}"
		leases := []string{"0", "-1", "-300000", "0.5", "1.5", "nan", "inf", "1e300", "", "x"}
		for _, c := range []struct {
			script         string
			keys, args     []string
			owners, leases []int // which of args are one
		}{
			{"acquire", []string{"l", "redlatch_queue:{l}"}, []string{alice, "300000", "0", "PUBLISH", "c"}, []int{0}, []int{1}},
			{"release", []string{"l", "redlatch_queue:{l}"},
				[]string{alice, "c", "PUBLISH", "g:", "", bob, entryOf(bob), "300000", "9999999999999", "1"}, []int{0, 5},
				[]int{7}},
			{"keep", []string{"l"}, []string{alice, "300000"}, []int{0}, []int{1}},
			{"join", []string{"l"}, []string{alice, bob, "300000", "0"}, []int{0, 1}, []int{2}},
			{"fenced_acquire", []string{"l", "redlatch_queue:{l}", "token"},
				[]string{alice, "300000", "0", "PUBLISH", "c", "", "300000"}, []int{0}, []int{1}},
			{"vote_acquire", []string{"l", "redlatch_queue:{l}"}, []string{alice, "300000", "0", "PUBLISH", "c", "-5000"},
				[]int{0}, []int{1}},
			{"several_acquire", []string{"l", "redlatch_queue:{l}"}, []string{"300000", "0", "PUBLISH", alice, "g:"}, []int{3},
				[]int{0}},
			{"fair_acquire", []string{"l", queue, timeouts}, []string{alice, "300000", "0", "PUBLISH", "c", "3000", "g:", ""},
				[]int{0}, []int{1}},
			{"fair_release", []string{"l", queue, timeouts}, []string{alice, "c", "PUBLISH", "", "g:"}, []int{0}, nil},
			{"plain_acquire", []string{"p"}, []string{alice, "300000", "0", "c", "PUBLISH"}, []int{0}, []int{1}},
			{"plain_release", []string{"p"}, []string{alice, "c", "PUBLISH"}, []int{0}, nil},
			{"plain_keep", []string{"p"}, []string{alice, "300000"}, []int{0}, []int{1}},
			{"rw_read", []string{"r", ends, "{r}:t"}, []string{alice, "300000", "0", "c", "", ""}, []int{0}, []int{1}},
			{"rw_write", []string{"r", ends}, []string{alice, "300000", "0", "c", "PUBLISH"}, []int{0}, []int{1}},
			{"rw_release", []string{"r", ends, "{r}:t"}, []string{alice, "c", "0"}, []int{0}, nil},
			{"rw_keep", []string{"r", ends, "{r}:t"}, []string{alice, "300000"}, []int{0}, []int{1}},
		} {
			for _, held := range []bool{false, true} {
				g.must(t, "FLUSHALL")
				if held {
					g.must(t, "HSET", "l", alice, "1")
					g.must(t, "PEXPIRE", "l", "100000")
					g.must(t, "HSET", "r", "mode", "read", alice, "1")
					g.must(t, "PEXPIRE", "r", "100000")
					g.must(t, "SET", "p", alice, "PX", "100000")
				}
				all := func() []any {
					names := wire.Keys(t, g.c)
					slices.Sort(names)
					return []any{names, wire.Hash(t, g.c, "l"), wire.Hash(t, g.c, "r"), wire.Text(t, g.c, "GET", "p")}
				}
				before := all()
				try := func(at []int, values []string) {
					t.Helper()
					for _, i := range at {
						for _, v := range values {
							args := slices.Clone(c.args)
							args[i] = v
							_, err := g.run(t, c.script, c.keys, args...)
							require.ErrorContains(t, err, "is not valid", "%s %q", c.script, args)
							require.Equal(t, before, all(), "%s %q", c.script, args)
							for _, key := range []string{"l", "r", "p"} {
								left := wire.Number(t, g.c, "PTTL", key)
								require.Equal(t, held, left > 0, "%s %q: %d ms", c.script, args, left)
							}
						}
					}
				}
				try(c.owners, []string{""})
				try(c.leases, leases)
			}
		}
	})
}

func TestRelease_NoRightOnTheChannel_StillReleases(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := newScriptRig(t, s)
	c := g.limited(t, s, "resetchannels")
	require.ErrorContains(t, c.Do(within(t), c.B().Publish().Channel("channel").Message("0").Build()).Error(), "NOPERM")
	g.must(t, "HSET", "l", alice, "1")
	for _, want := range []int64{1, 0} {
		got, err := eval(t, c, source(t, "release"), []string{"l"}, alice, "channel", "PUBLISH")
		require.NoError(t, err)
		require.Equal(t, []int64{want}, got)
		require.Zero(t, wire.Number(t, g.c, "EXISTS", "l"))
	}
}
