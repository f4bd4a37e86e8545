package rlock_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/oracle/judges"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
)

// The model of tenures is worth what its server is: each script, in any order, does to the lock, to its queue and to
// those that are told what the model's does, and replies the same.
func TestScripts_RandomOrders_AnswerAsTheModelOfTenures(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"embedded", "real"} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Embedded(t)
			if name == "real" {
				s = redistest.Start(t)
			}
			g := newScriptRig(t, s)
			for _, seed := range redistest.Seeds(t, redistest.Sized(1, 4, 200)) {
				agrees(t, g, seed)
			}
		})
	}
}

var modelled = []string{alice[:36], bob[:36], carol[:36]}

func ownerText(o judges.TenureOwner) string {
	return fmt.Sprintf("%s:%d", modelled[o.Process], o.Number)
}

// agrees runs one sequence of requests on both.
func agrees(t *testing.T, g *scriptRig, seed uint64) {
	t.Helper()
	const steps, most = 120, 4 // in the queue, as in the model
	key := fmt.Sprintf("agrees:%d", seed)
	queue, channel, grants := "redlatch_queue:{"+key+"}", "redisson_lock__channel:{"+key+"}", "grants:{"+key+"}:"
	heard, stop := wire.Overhear(t, g.c, []string{grants + modelled[0], grants + modelled[1], grants + modelled[2]}, nil)
	defer stop()
	random := rand.New(rand.NewPCG(seed, 0))
	model := &judges.TenureServer{}
	holder, line, _ := model.Look()
	anybody := func() judges.TenureOwner {
		if holder.Number != 0 && random.IntN(3) == 0 {
			return holder
		}
		return judges.TenureOwner{Process: random.IntN(3), Number: 1 + random.IntN(3)}
	}
	var did []string
	for range steps {
		o, next, late, notAfter := anybody(), judges.TenureOwner{}, random.IntN(6) == 0, "0"
		if late {
			notAfter = "1"
		}
		var want judges.TenureReply
		var got, expected []int64
		var err error
		switch act := random.IntN(9); {
		case act == 0:
			did = append(did, "the lease ends")
			model.Expire()
			g.must(t, "DEL", key)
		case act == 8:
			to := judges.TenureOwner{Process: o.Process, Number: 1 + random.IntN(3)}
			did = append(did, fmt.Sprintf("%v is replaced by %v, late: %v", o, to, late))
			want = model.Transfer(to, o, late)
			got, err = g.run(t, "acquire", []string{key, queue}, ownerText(to), "300000", notAfter, "PUBLISH", grants, "",
				ownerText(o))
			got, expected = got[:1], []int64{b2i(want.Granted) + 2*b2i(want.TooLate)}
			if expected[0] == 0 {
				expected[0] = 3
			}
		case act < 4 && len(line) < most:
			did = append(did, fmt.Sprintf("%v asks, late: %v", o, late))
			want = model.Ask(o, late)
			got, err = g.run(t, "acquire", []string{key, queue}, ownerText(o), "300000", notAfter, "PUBLISH", grants,
				entryOf(ownerText(o)))
			expected = []int64{b2i(want.Granted) + 2*b2i(want.TooLate)}
			if err == nil && want.Queued {
				require.Positive(t, got[3], "%v", did)
			}
			if got = got[:min(1, len(got))]; want.Granted && len(got) == 1 && got[0] > 2 {
				got[0] = 1 // the common reply is the server's time alone
			}
		default:
			args := []string{ownerText(o), channel, "PUBLISH", grants, entryOf(ownerText(o))}
			if random.IntN(2) == 0 && len(line) < most {
				next = judges.TenureOwner{Process: o.Process, Number: 4 + random.IntN(3)}
				if !late {
					notAfter = "99999999999999"
				}
				args = append(args, ownerText(next), entryOf(ownerText(next)), "300000", notAfter, "1")
			}
			did = append(did, fmt.Sprintf("%v is released, and names %v, late: %v", o, next, late))
			want = model.Release(o, next, late)
			got, err = g.run(t, "release", []string{key, queue}, args...)
			expected = []int64{b2i(want.Found)}
			if next.Number != 0 {
				got[2] = min(got[2], 1)
				expected = append(expected, b2i(want.Granted)+2*b2i(want.Queued), b2i(want.Queued || want.Others))
			}
		}
		require.NoError(t, err)
		require.Equal(t, expected, got, "%v", did)
		var told []judges.TenureOwner
		holder, line, told = model.Look()
		compare(t, g, key, holder, line, told, heard(), did)
	}
}

// compare looks at what there is on the server.
func compare(t *testing.T, g *scriptRig, key string, holder judges.TenureOwner, line, told []judges.TenureOwner,
	heard, did []string) {
	t.Helper()
	fields := map[string]string{}
	if holder.Number != 0 {
		fields[ownerText(holder)] = "1"
	}
	hash, err := g.do(t, "HGETALL", key).AsStrMap()
	require.NoError(t, err)
	require.Equal(t, fields, hash, "%v", did)
	var places, grants []string
	for _, o := range line {
		places = append(places, ownerText(o))
	}
	require.Equal(t, places, g.queue(t, "redlatch_queue:{"+key+"}").line, "%v", did)
	for _, h := range heard {
		words := strings.Fields(h)
		_, err := strconv.ParseInt(words[1], 10, 64)
		require.NoError(t, err, h)
		grants = append(grants, words[3])
	}
	var expected []string
	for _, o := range told {
		expected = append(expected, ownerText(o))
	}
	require.Equal(t, expected, grants, "%v", did)
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
