package election_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/rlock/election"
)

// TestSightings_WorkersComeAndGo_CountOnceTheyLast: a worker is written as its id and the number of its shards, with a
// "!" if it is to have none. The workers settle after 15 tenths of a beat.
func TestSightings_WorkersComeAndGo_CountOnceTheyLast(t *testing.T) {
	t.Parallel()
	type look struct {
		at      int // in tenths of a beat
		present string
		view    string
		settled bool
	}
	for name, looks := range map[string][]look{
		"the first waits, and takes": {{0, "a0", "a0!", false}, {10, "a0", "a0!", false}, {20, "a0", "a0", true}},
		"those that start together wait for each other": {{0, "a0", "a0!", false}, {10, "a0 b0", "a0! b0!", false},
			{20, "a0 b0", "a0 b0!", false}, {30, "a0 b0", "a0 b0", true}},
		"but not for one that restarts": {{0, "a0", "a0!", false}, {10, "a0 x0", "a0! x0!", false},
			{20, "a0 y0", "a0 y0!", false}, {30, "a0 z0", "a0 z0!", true}, {40, "a4 q0", "a4 q0!", true}},
		"a new worker has no share, and an old one acts": {{0, "a4", "a4", true}, {10, "a4 b0", "a4 b0!", true},
			{20, "a4 b0", "a4 b0!", true}, {30, "a4 b0", "a4 b0", true}},
		"a new worker waits beside an old one": {{0, "a0 b4", "a0! b4", false}, {10, "a0 b4", "a0! b4", false},
			{20, "a0 b4", "a0 b4", true}},
		"a late worker keeps what it has": {{0, "a2 b2", "a2 b2", true}, {20, "a2 b2", "a2 b2", true},
			{30, "a2", "a2 b2", true}, {40, "a2 b2", "a2 b2", true}, {50, "a2 b2", "a2 b2", true}},
		"a worker that is gone is left out": {{0, "a2 b2", "a2 b2", true}, {20, "a2", "a2 b2", true},
			{30, "a2 c0", "a2 b2 c0!", true}, {40, "a2 c0", "a2 c0!", true}, {50, "a2 c0", "a2 c0", true}},
		"each has its own time": {{0, "a2 b2 c2", "a2 b2 c2", true}, {10, "a2 b2", "a2 b2 c2", true},
			{20, "a2 d0", "a2 b2 c2 d0!", true}, {30, "a2 e0", "a2 b2 e0!", true}, {40, "a2 f0", "a2 f0!", true}},
		"one without shards that is missed has no share": {{0, "a2 b0", "a2 b0!", true}, {20, "a2 b0", "a2 b0", true},
			{30, "a2", "a2", true}},
		"a drain counts at once, its end when it lasts": {{0, "a2 b2", "a2 b2", true}, {20, "a2 b2!", "a2 b2!", true},
			{30, "a4 b0!", "a4 b0!", true}, {40, "a4 b0", "a4 b0!", true}, {50, "a4 b0", "a4 b0!", true},
			{60, "a4 b0", "a4 b0", true}},
		"one that is drained itself gives up at once": {{0, "a2 b2", "a2 b2", true}, {20, "a2! b2", "a2! b2", true}},
		"it was not seen itself":                      {{0, "b2", "b2", false}, {10, "a0 b2", "a0! b2", false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			s := election.NewSightings("a", 1500*time.Millisecond)
			for _, l := range looks {
				view, settled := s.Update(start.Add(time.Duration(l.at)*100*time.Millisecond), parse(l.present)...)
				require.Equal(t, l.view, text(view), "at %d", l.at)
				require.Equal(t, l.settled, settled, "at %d", l.at)
			}
			for at := range 3 {
				s.Update(start.Add(time.Duration(at+1) * time.Minute))
			}
			require.Zero(t, s.Seen(), "of those that are gone nothing is kept")
		})
	}
}

func parse(workers string) (all []election.Member) {
	for _, w := range strings.Fields(workers) {
		m := election.Member{ID: w[:1], Has: make([]bool, 4), Drained: strings.HasSuffix(w, "!")}
		for i := range int(w[1] - '0') {
			m.Has[i] = true
		}
		all = append(all, m)
	}
	return all
}

func text(all []election.Member) string {
	var words []string
	for _, m := range all {
		word := m.ID + "0"
		for i, has := range m.Has {
			if has {
				word = m.ID + string(rune('1'+i))
			}
		}
		if m.Drained {
			word += "!"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
