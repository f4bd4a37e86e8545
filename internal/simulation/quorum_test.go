package simulation_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/leasemodel"
	"github.com/redlatch/redlatch/internal/quorummodel"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/simulation"
)

// How servers vote, and which tokens they keep, through restarts with their data and without, the model of a Quorum's
// tokens does, too.
func TestWhatAQuorumDoesOnTheWireTheModelOfTokensDoes(t *testing.T) {
	redistest.SkipShort(t)
	votes, sure, keeps := 0, 0, 0
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 1, 100)) {
		f, err := followQuorum(t, simulation.Run(t, quorumPlan(2*seed), nil))
		if err != nil {
			t.Errorf("seed %d: %v", 2*seed, err)
		}
		votes, sure, keeps = votes+f.Votes, sure+f.Sure, keeps+f.Keeps
	}
	t.Logf("%d votes, %d of them sure of the last token, %d tokens kept", votes, sure, keeps)
	require.Positive(t, sure)
	require.Positive(t, keeps)
}

// quorumPlan is the plan of a seed, an even one, whose Quorum has tokens, without what the model does not know.
func quorumPlan(seed uint64) simulation.Plan {
	p := simulation.NewPlan(seed, "quorum")
	p.Wired = true
	p.Steps = slices.DeleteFunc(p.Steps, func(s simulation.Step) bool {
		return slices.Contains([]string{"failover", "clock", "flush-all"}, string(s.What))
	})
	return p
}

func followQuorum(t *testing.T, r simulation.Result) (*quorummodel.Follower, error) {
	f := quorummodel.NewFollower()
	began := r.Wire[0].At
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
		return n
	}
	for _, w := range r.Wire {
		at, now := w.At.Sub(began), w.Server.Sub(began)
		var err error
		switch {
		case w.Restart:
			f.Restarted(at, w.Node, w.Empty)
		case w.Read || w.Keys == 0 || !strings.HasPrefix(w.Args[0], "quorum"):
		case strings.HasPrefix(w.Script, "-- One server's vote"):
			if a := w.Args[w.Keys:]; w.Reply[0] == 1 {
				err = f.Voted(at, now, millis(a[1]), millis(a[5]), w.Node, w.Client, a[0], w.Reply[5], w.Reply[6],
					w.Server.UnixMicro())
			}
		case strings.HasPrefix(w.Script, "-- Keep the fencing token"):
			if a := w.Args[w.Keys:]; len(a) == 0 {
				err = f.Asked(at, w.Node, w.Client, w.Reply[1])
			} else {
				err = f.Answered(at, now, w.Node, w.Client, a[0], number(a[1]), number(a[2]),
					quorummodel.Answer(w.Reply[0]), w.Reply[1])
			}
		default:
			for _, s := range leaseSteps(t, w, began) {
				switch {
				case s.Said != leasemodel.Yes:
				case s.Verb == leasemodel.Release:
					f.Released(w.Node, s.Owner)
				case s.Verb == leasemodel.Renew:
					f.Renewed(now, s.Lease, w.Node, s.Owner)
				}
			}
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// By default one of the faults is planted.
func TestTheModelOfTokensRefusesPlantedFaults(t *testing.T) {
	redistest.SkipShort(t)
	vote, keep := "-- One server's vote for an owner", "-- Keep the fencing token"
	faults := []simulation.Mutant{
		{Name: "a record of an earlier run counts", Of: vote,
			Old: "if not kept or last[2] ~= digits(run) then", New: "if false then"},
		*simulation.MutantOf("a server that has forgotten its votes votes"),
		{Name: "a vote says the clock", Of: vote, Old: "token = math.max(us, kept or 0)", New: "token = us"},
		{Name: "a token is kept for whose vote is over", Of: keep, Old: "if not held[1] or till", New: "if till"},
		{Name: "a token is not kept", Of: keep, Old: "redis.call('HSET', KEYS[2], 'token', ARGV[2]",
			New: "redis.call('HSET', KEYS[2], 'token', '1'"},
	}
	for i := range faults[:redistest.Sized(1, 1, len(faults))] {
		m := &faults[i]
		t.Run(m.Name, func(t *testing.T) {
			start := time.Now()
			for seed := uint64(2); seed <= 100; seed += 2 {
				if _, err := followQuorum(t, simulation.Run(t, quorumPlan(seed), m)); err != nil {
					t.Logf("by seed %d, in %v: %v", seed, time.Since(start), err)
					return
				}
			}
			t.Error("no seed of 50 is refused")
		})
	}
}
