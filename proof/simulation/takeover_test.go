package simulation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/proof/models/beliefmodel"
	"github.com/redlatch/redlatch/proof/simulation"
)

// trusted is for how long processes of the simulation are trusted after a heartbeat: for three of them.
const trusted = 600 * time.Millisecond

// With Liveness, what processes see of each other's heartbeats, and which locks they take from whom, the model of
// take-over can do, too.
func TestTakeOver_OnTheWire_FollowsItsModel(t *testing.T) {
	redistest.SkipShort(t)
	looks, taken := 0, 0
	for _, seed := range redistest.Seeds(t, redistest.Sized(1, 2, 100)) {
		f, err := followTakeOver(t, simulation.Run(t, beatingPlan(seed), nil))
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		looks, taken = looks+f.Looks, taken+f.Taken
	}
	t.Logf("%d looks, %d holds taken over", looks, taken)
	require.Positive(t, taken)
}

func beatingPlan(seed uint64) simulation.Plan {
	p := leasePlan(seed)
	p.Beating = true
	return p
}

// followTakeOver follows what was seen in the models of deadlines and of take-over.
func followTakeOver(t *testing.T, r simulation.Result) (*beliefmodel.BeatFollower, error) {
	f := beliefmodel.NewBeatFollower(trusted)
	began := r.Wire[0].At
	next := 0
	// beats are the steps of heartbeats up to the one that the other model is about to take in
	beats := func(to simulation.Wire) error {
		for ; next < len(r.Wire) && r.Wire[next].At.Compare(to.At) <= 0; next++ {
			if err := beatStep(f, r.Wire[next], began); err != nil {
				return err
			}
		}
		return nil
	}
	_, err := followLeases(t, r, func(lock string, s beliefmodel.Step, counts time.Duration) error {
		if err := beats(simulation.Wire{At: began.Add(s.At)}); err != nil {
			return err
		}
		switch {
		case s.Passage == beliefmodel.Says:
			return f.Says(s.At, s.Until, s.Process)
		case s.Passage == beliefmodel.Ran && s.Verb == beliefmodel.Remove:
			return f.Removed(s.At, s.Process, lock, s.Owner, s.Said == beliefmodel.Yes)
		case s.Passage == beliefmodel.Reached && s.Verb == beliefmodel.Look:
			f.Saw(s.At, s.Process, lock, s.Owner)
		case s.Passage == beliefmodel.Reached && s.Verb == beliefmodel.Release && s.NextSaid == beliefmodel.Yes:
			f.Held(s.At, s.Sent, s.Process, beatOf(s.Next), s.Next)
		case s.Passage > beliefmodel.Ran && s.Verb == beliefmodel.Acquire && counts > 0 && s.Owner != "":
			f.Held(s.At, counts, s.Process, beatOf(s.Owner), s.Owner)
		}
		return nil
	})
	return f, err
}

// beatOf is the key of the heartbeats of an owner's process.
func beatOf(owner string) string { return "redlatch_alive:" + owner[:36] }

// beatStep takes in what the model knows of heartbeats.
func beatStep(f *beliefmodel.BeatFollower, w simulation.Wire, began time.Time) error {
	at, sent, server := w.At.Sub(began), w.Sent.Sub(began), w.Server.Sub(began)
	switch {
	case w.Flush:
		f.Forgot()
	case strings.HasPrefix(w.Script, "-- One beat"):
		if w.Read {
			f.Confirmed(at, sent, w.Args[0])
		} else {
			f.Beat(server, millis(w.Args[1]), w.Args[0])
		}
	case strings.HasPrefix(w.Script, "-- When a heartbeat's key expires"):
		if w.Read {
			f.Looked(at, sent, w.Client, w.Args[0], w.Reply[0], beatOf)
		} else {
			return f.Ran(server, w.Args[0], w.Reply[0], began.UnixMilli())
		}
	}
	return nil
}

// Where a process removes an owner that it has not watched for long enough, the model refuses the removal.
func TestTakeOver_RemovalTooSoon_IsRefused(t *testing.T) {
	redistest.SkipShort(t)
	r := simulation.Run(t, beatingPlan(takesOver), nil)
	f, err := followTakeOver(t, r)
	require.NoError(t, err)
	require.Positive(t, f.Taken)
	for i := range r.Wire { // each look as if it was sent a trust earlier: so it shows less
		if w := &r.Wire[i]; w.Read && strings.HasPrefix(w.Script, "-- When a heartbeat's key expires") {
			w.Sent = w.Sent.Add(-trusted)
		}
	}
	_, err = followTakeOver(t, r)
	require.ErrorContains(t, err, "removes")
}

// takesOver is a seed in which a hold is taken over.
const takesOver = 1
