package simulation_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/simulation"
	"github.com/redlatch/redlatch/internal/tenuremodel"
)

// What a process of the library does on the wire, the model of tenures can do, too: so what is found of the model
// counts for the library. Callers of a crowd give up at any moment, and nothing else goes wrong.
func TestWhatALockDoesOnTheWireTheModelOfTenuresCanDo(t *testing.T) {
	redistest.SkipShort(t)
	total := 0
	seeds := redistest.Sized([]uint64{4}, []uint64{4}, nil) // in which releases name the next
	switch {
	case redistest.RaceEnabled: // the following, which takes most of the time, is done by one goroutine
		seeds = []uint64{8}
	case seeds == nil:
		seeds = redistest.Seeds(t, 30)
	}
	for _, seed := range seeds {
		p, all := seen(t, seed)
		for client, steps := range all {
			from := idle(steps)
			ways, err := tenuremodel.Follow(callers, p.Longest, steps, from)
			require.NoError(t, err, "seed %d, %s", seed, client)
			total += len(steps) - from
			named := 0
			for _, s := range steps[from:] {
				if s.Next != "" && s.Passage == tenuremodel.Ran {
					named++
				}
			}
			t.Logf("seed %d, %s: %d of %d steps, %d releases that name the next, %d ways at most", seed, client,
				len(steps)-from, len(steps), named, ways)
		}
	}
	require.Positive(t, total)
}

// What the library does not do is refused: a release that names nobody though one waits, one that is made twice, a
// request that is not made.
func TestAWireThatTheLibraryDoesNotHaveIsRefused(t *testing.T) {
	redistest.SkipShort(t)
	p, all := seen(t, 4)
	reach := redistest.Sized(60, 60, 250)
	if redistest.RaceEnabled {
		reach = 60
	}
	changes := map[string]func(steps []tenuremodel.Step, i int) []tenuremodel.Step{
		"the next is not named": func(steps []tenuremodel.Step, i int) []tenuremodel.Step {
			if steps[i].Next != "" {
				steps[i].Next = ""
			}
			return steps
		},
		"a request that was not made": func(steps []tenuremodel.Step, i int) []tenuremodel.Step {
			if steps[i].Ask {
				return slices.Delete(steps, i, i+1)
			}
			return steps
		},
		"a release that names the next twice": func(steps []tenuremodel.Step, i int) []tenuremodel.Step {
			if steps[i].Next != "" {
				return slices.Insert(steps, i, steps[i])
			}
			return steps
		},
	}
	for what, change := range changes {
		tried, refused := 0, 0
		for _, steps := range all {
			from := idle(steps)
			for i := from; i < min(from+reach, len(steps)); i++ {
				steps := steps[:min(i+100, len(steps))] // it may be found out later
				changed := change(slices.Clone(steps), i)
				if steps[i].Passage != tenuremodel.Ran || slices.Equal(changed, steps) {
					continue
				}
				tried++
				if _, err := tenuremodel.Follow(callers, p.Longest, changed, from); err != nil {
					refused++
				}
			}
		}
		t.Logf("%s: %d of %d refused", what, refused, tried)
		require.Greater(t, 2*refused, tried, what) // a caller that leaves in time explains some of them
	}
}

// seen is what each client of a crowd does on the wire.
func seen(t *testing.T, seed uint64) (simulation.Plan, map[string][]tenuremodel.Step) {
	p := simulation.NewCrowd(seed, "reentrant")
	p.Wired = true
	p.Steps = fewer(p)
	r := simulation.Run(t, p, nil)
	require.Empty(t, r.Violations)
	return p, steps(t, r.Wire)
}

// callers is how many a client has at once: with each more the model can have come to a step in several times as many
// ways.
const callers = 4

// fewer are the steps of a crowd that leave each client so many callers, each of whom waits; one that asks once has no
// turn.
func fewer(p simulation.Plan) (steps []simulation.Step) {
	busy := make([][callers]time.Duration, p.Clients)
	for _, s := range p.Steps {
		i := slices.IndexFunc(busy[s.Who][:], func(until time.Duration) bool { return until < s.At })
		if i < 0 || s.Wait == 0 || s.Wait > 50*time.Millisecond {
			continue
		}
		busy[s.Who][i] = s.At + s.Wait + s.For + 10*time.Millisecond // and what the calls take
		steps = append(steps, s)
	}
	return steps
}

// steps are those of each client that the model knows.
func steps(t *testing.T, wire []simulation.Wire) map[string][]tenuremodel.Step {
	all := map[string][]tenuremodel.Step{}
	for _, w := range wire {
		s := tenuremodel.Step{At: w.At, Passage: tenuremodel.Ran}
		if w.Read {
			s.Passage = tenuremodel.Reached
		}
		args := w.Args[min(w.Keys, len(w.Args)):]
		switch {
		case w.Message != "":
			ticket, rest, _ := strings.Cut(w.Message, " ")
			_, owner, found := strings.Cut(rest, " ")
			n, err := strconv.ParseInt(ticket, 10, 64)
			if !found || err != nil {
				continue
			}
			s.Passage, s.Owner, s.Ticket = tenuremodel.Heard, owner, n
		case strings.HasPrefix(w.Script, "-- Take the lock"):
			s.Ask, s.Owner = true, args[0]
			r := &s.Reply
			r.Granted, r.Others = len(w.Reply) == 1 || w.Reply[0] == 1, len(w.Reply) > 1 && w.Reply[0] == 1
			if r.Queued, r.TooLate = !r.Granted && w.Reply[0] == 0, !r.Granted && w.Reply[0] == 2; r.Queued {
				s.Ticket = w.Reply[3]
			}
		case strings.HasPrefix(w.Script, "-- Take an owner out of a lock"):
			s.Owner = args[0]
			if len(args) > 5 {
				s.Next = args[5]
				s.Reply.Granted, s.Reply.Queued = w.Reply[1] == 1, w.Reply[1] == 2
				if s.Reply.Others = s.Reply.Granted && w.Reply[2] != 0; s.Reply.Queued {
					s.Ticket = w.Reply[2]
				}
			}
		default:
			require.False(t, strings.HasPrefix(w.Script, "-- Acquire"), "%+v", w)
			continue
		}
		all[w.Client] = append(all[w.Client], s)
	}
	return all
}

// idle is the first step before which the process has nothing, and has stood in the queue before: so it hears grants.
func idle(steps []tenuremodel.Step) int {
	open, stood := map[string]bool{}, false
	for i, s := range steps {
		if stood && len(open) == 0 && s.Passage == tenuremodel.Ran && s.Ask {
			return i
		}
		stood = stood || s.Ask && s.Ticket != 0
		if s.Passage == tenuremodel.Heard {
			continue
		}
		open[s.Owner] = true
		if s.Next != "" {
			open[s.Next] = true
		}
		if !s.Ask && s.Passage == tenuremodel.Reached {
			delete(open, s.Owner)
		}
	}
	return len(steps)
}
