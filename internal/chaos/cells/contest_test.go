package cells

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// held is a hold of what a worker noted: got at from, looked at until to, given back with an answer. Times are in
// milliseconds.
func heldFor(client int, id string, from, to int64, out string) (list []event) {
	const ms = int64(time.Millisecond)
	e := event{Client: client, Of: contended, ID: id, N: 1}
	take, leave := e, e
	take.Do, take.Call, take.Return, take.To, take.Out = "take", (from-1)*ms, from*ms, from*ms, "ok"
	list = append(list, take)
	for at := from + 1; at <= to; at++ {
		look := e
		look.Do, look.Return, look.To = "look", take.Return, at*ms
		list = append(list, look)
	}
	leave.Do, leave.Call, leave.Return, leave.To, leave.Out = "leave", to*ms+1, (to+1)*ms, to*ms, out
	if out != "" { // else it was killed
		list = append(list, leave)
	}
	return list
}

func judged(events ...[]event) (r round, edn string) {
	h := record{lease: 10 * time.Millisecond, ended: map[int]int64{}}
	for _, list := range events {
		h.events = append(h.events, list...)
	}
	r.judge(h, span{0, int64(time.Second)}, true)
	var b bytes.Buffer
	printOps(&b, h.ops())
	return r, b.String()
}

func TestAContestCountsWhatIsPlanted(t *testing.T) {
	waits := event{Client: 9, Of: contended, Do: "take", ID: "w", Call: 1, Return: int64(100 * time.Millisecond),
		Out: "canceled"}
	wiped := event{Do: "wiped", Call: int64(15 * time.Millisecond), Return: int64(16 * time.Millisecond)}
	for name, c := range map[string]struct {
		events                         [][]event
		violations, reported, late, no int
		longest, stall                 time.Duration
	}{
		"one after the other": {events: [][]event{heldFor(1, "a", 10, 20, "ok"), heldFor(2, "b", 22, 30, "ok")}},
		"two at once": {events: [][]event{heldFor(1, "a", 10, 30, "ok"), heldFor(2, "b", 20, 25, "ok")},
			violations: 1, no: 1, longest: 9 * time.Millisecond},
		"one hold, others twice": {
			events:     [][]event{heldFor(1, "a", 10, 30, "gone"), heldFor(2, "b", 20, 22, "ok"), heldFor(2, "c", 24, 26, "ok")},
			violations: 1, late: 1, longest: 9 * time.Millisecond,
		},
		"reported":         {events: [][]event{heldFor(1, "a", 10, 20, "lost"), heldFor(2, "b", 22, 30, "ok")}, reported: 1},
		"killed":           {events: [][]event{heldFor(1, "a", 10, 20, ""), heldFor(2, "b", 32, 40, "ok")}},
		"wiped and silent": {events: [][]event{heldFor(1, "a", 10, 20, "ok"), {wiped}}, no: 1},
		"a stall": {events: [][]event{heldFor(1, "a", 10, 20, "ok"), heldFor(2, "b", 70, 100, "ok"), {waits}},
			stall: 40 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			r, edn := judged(c.events...)
			require.Equal(t, c.violations, r.Violations)
			require.Equal(t, [3]int{c.reported, c.late, c.no}, [3]int{r.Reported, r.Late, r.Never})
			require.Equal(t, c.longest, r.Longest)
			require.InDelta(t, float64(c.stall), float64(r.Stall), float64(time.Microsecond))
			require.Equal(t, c.violations > 0, len(r.evidence[TwoHolders]) > 0)
			require.Equal(t, strings.Count(edn, ":type :invoke"),
				strings.Count(edn, ":type :ok")+strings.Count(edn, ":type :info"))
		})
	}
}

// In the history of two holders at once the first one's release is invoked when the second one has acquired it: no
// mutex has that.
func TestAHistoryOfTwoHoldersIsWrittenSo(t *testing.T) {
	_, edn := judged(heldFor(1, "a", 10, 30, "gone"), heldFor(2, "b", 20, 25, "ok"))
	got := strings.Index(edn, `:type :ok, :f :acquire, :value nil, :time 20000000, :hold "b"`)
	left := strings.Index(edn, `:type :invoke, :f :release, :value nil, :time 30000001, :hold "a"`)
	require.Positive(t, got, edn)
	require.Greater(t, left, got, edn)
	require.Contains(t, edn, `:type :info, :f :release`)
}

func TestCellsOfAContestAreChosen(t *testing.T) {
	libraries := []Library{{Name: "a"}, {Name: "b", Servers: five}, {Name: "c", Start: func(testing.TB) Server {
		return nil
	}}}
	all := places(libraries)
	for only, want := range map[string]int{"": len(all), "a": len(rivalFaults), "a/holder-paused": 1, "*/FLUSHALL": 3,
		"b/none,c/none": 2} {
		list, err := picked(all, only, "")
		require.NoError(t, err)
		require.Len(t, list, want, only)
	}
	list, err := picked(all, "*/none", "a,b")
	require.NoError(t, err)
	require.Len(t, list, 1)
	for _, bad := range []string{"d", "a/bad-luck", "b/failover"} {
		_, err := picked(all, bad, "")
		require.ErrorContains(t, err, bad)
	}
	var out bytes.Buffer
	require.ErrorContains(t, Play(context.Background(), libraries, nil, []string{"-duration", "0s"}, &out, &out),
		"must be positive")
}
