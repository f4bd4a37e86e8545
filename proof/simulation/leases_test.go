package simulation_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/wait"
	"github.com/redlatch/redlatch/proof/models/beliefmodel"
	"github.com/redlatch/redlatch/proof/simulation"
)

// leased are the kinds of locks that the model of deadlines describes.
var leased = []string{"reentrant", "nonreentrant", "fenced"}

// What the scripts reply about a lock, and until when its holders believe, the model of deadlines can do, too: so what
// is found of the model counts for the library.
func TestLeases_OnTheWire_FollowTheModelOfDeadlines(t *testing.T) {
	redistest.SkipShort(t)
	total := 0
	for _, seed := range redistest.Seeds(t, redistest.Sized(2, 2, 200)) {
		p := leasePlan(seed)
		n, err := followLeases(t, simulation.Run(t, p, nil), nil)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		total += n
	}
	t.Logf("%d steps", total)
	require.Positive(t, total)
}

// leasePlan is the plan of a seed, without what has a server go back to what it was: the model knows no copies of it,
// and its clock does not step.
func leasePlan(seed uint64) simulation.Plan {
	p := simulation.NewPlan(seed, leased...)
	p.Wired = true
	p.Steps = slices.DeleteFunc(p.Steps, func(s simulation.Step) bool {
		return slices.Contains([]string{"empty", "failover", "clock"}, string(s.What))
	})
	return p
}

// followLeases follows what was seen of each lock, and returns in how many steps. also, if it is not nil, is called
// after each.
func followLeases(
	t *testing.T, r simulation.Result, also func(lock string, s beliefmodel.Step, counts time.Duration) error,
) (n int, err error) {
	locks := map[string]*beliefmodel.LeaseFollower{}
	began := r.Wire[0].At
	transferred := map[string]bool{}
	clocks := func(w simulation.Wire, s *beliefmodel.Step) {
		s.At, s.Server, s.Sent = w.At.Sub(began), w.Server.Sub(began), w.Sent.Sub(began)
	}
	for _, w := range r.Wire {
		for _, s := range leaseSteps(t, w, began, transferred) {
			clocks(w, &s.Step)
			names := []string{s.key}
			if s.key == "" { // a grant does not say of which lock; FLUSHALL is of all
				names = leaseNames(locks)
			}
			for _, name := range names {
				if locks[name] == nil {
					locks[name] = beliefmodel.NewLeaseFollower()
				}
				if err := locks[name].See(s.Step); err != nil {
					return n, err
				}
				n++
				if also == nil {
					continue
				}
				if err := also(name, s.Step, locks[name].Counts(s.Owner)); err != nil {
					return n, err
				}
			}
		}
	}
	return n, nil
}

func leaseNames(locks map[string]*beliefmodel.LeaseFollower) (names []string) {
	for name := range locks {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

type leaseStep struct {
	key string
	beliefmodel.Step
}

func millis(text string) time.Duration {
	n, _ := strconv.ParseInt(text, 10, 64) // '' is none
	return time.Duration(n) * time.Millisecond
}

func said(yes bool) beliefmodel.Said {
	if yes {
		return beliefmodel.Yes
	}
	return beliefmodel.No
}

// transferFrom is the owner from which a request takes the lock over; "" if it is an ordinary request.
func transferFrom(w simulation.Wire) string {
	at := 6
	if strings.HasPrefix(w.Script, "-- Acquire a fenced lock") {
		at = 7
	}
	if args := w.Args[w.Keys:]; len(args) > at {
		return args[at]
	}
	return ""
}

// leaseSteps are what the model knows of one thing that was seen. A transfer is a release that names the next owner.
// Its second run is an acquire of an owner that has the lock already: transferred has the owners of first runs.
func leaseSteps(t *testing.T, w simulation.Wire, began time.Time, transferred map[string]bool) (steps []leaseStep) {
	s := beliefmodel.Step{Process: w.Client, Passage: beliefmodel.Ran, Left: -1}
	if w.Read {
		s.Passage = beliefmodel.Reached
	}
	add := func(key string, s beliefmodel.Step) { steps = append(steps, leaseStep{key, s}) }
	keys, args := w.Args[:w.Keys], w.Args[w.Keys:]
	server := func(ms string) time.Duration { // an instant of the server's clock
		if ms == "0" || ms == "" {
			return 0
		}
		return time.UnixMilli(int64(millis(ms) / time.Millisecond)).Sub(began)
	}
	is := func(first string) bool { return strings.HasPrefix(w.Script, first) }
	switch {
	case w.Flush:
		s.Passage = beliefmodel.Forgot
		add("", s)
	case w.Holds != "":
		s.Passage, s.Until = beliefmodel.Says, w.Until.Sub(began)
		add(w.Holds, s)
	case w.Message != "":
		f := strings.Fields(w.Message)
		if len(f) != 3 || len(f[2]) < 36 || f[0] == "0" {
			return nil
		}
		s.Passage, s.Lease, s.Owner = beliefmodel.Heard, millis(f[1]), f[2]
		s.Ticket, _ = strconv.ParseInt(f[0], 10, 64)
		add("", s)
	case is("-- Acquire the lock."), is("-- Acquire a fenced lock"):
		s.Verb, s.Owner, s.Lease, s.NotAfter = beliefmodel.Acquire, args[0], millis(args[1]), server(args[2])
		if len(args) > 5 && args[5] != "" {
			s.First = firstLease(t, args[5])
		}
		switch r := w.Reply; {
		case len(r) == 1:
			s.Said, s.Left = beliefmodel.Yes, s.Lease
		case r[0] == 1:
			s.Said, s.Left = beliefmodel.Yes, time.Duration(r[1])*time.Millisecond
		case r[0] == 0:
			s.Left, s.Ticket = time.Duration(r[1])*time.Millisecond, r[3]
		case r[0] == 2:
			s.Said = beliefmodel.TooLate
		case transferFrom(w) != "": // nothing was done: the old owner has lost the lock, or is not alone
			return nil
		default:
			t.Fatalf("a lock was joined: %+v", w)
		}
		if from := transferFrom(w); from != "" && s.Said == beliefmodel.Yes && (w.Read || !transferred[s.Owner]) {
			if !w.Read {
				transferred[s.Owner] = true
			}
			s.Verb, s.Next, s.NextLease, s.NextSaid = beliefmodel.Release, s.Owner, s.Lease, beliefmodel.Yes
			s.Owner = from
		}
		add(keys[0], s)
	case is("-- Remove an owner from a lock"):
		s.Verb, s.Owner, s.Said = beliefmodel.Release, args[0], said(w.Reply[0] == 1)
		if len(args) > 5 {
			s.Next, s.NextLease, s.NextSaid = args[5], millis(args[7]), said(w.Reply[1] == 1)
			if s.First = firstLease(t, args[6]); w.Reply[1] == 2 {
				s.Ticket = w.Reply[2]
			}
		}
		add(keys[0], s)
	case is("-- Renew the leases of many holds"):
		for i, key := range keys {
			s := s
			s.Verb, s.Owner, s.Lease = beliefmodel.Renew, args[2*i], max(millis(args[2*i+1]), 0)
			if s.Said = said(w.Reply[i] >= 1); w.Reply[i] > 1 {
				s.Left = time.Duration(w.Reply[i]-1) * time.Millisecond
			}
			add(key, s)
		}
	case is("-- The common case of acquire, release"):
		for i := range len(keys) / 2 {
			s := s
			a := args[1+4*i:]
			if w.Reply[1+i] == 0 {
				continue // it is to ask alone
			}
			s.Said, s.Verb, s.Owner = beliefmodel.Yes, beliefmodel.Release, a[0]
			if a[1] != "" {
				s.Verb, s.Lease, s.Left = beliefmodel.Acquire, millis(a[1]), millis(a[1])
			}
			add(keys[2*i], s)
		}
	case is("-- What acquire does for waiters"):
		for i := range len(keys) / 2 {
			if w.Reply[i] == 1 && w.Read { // it is refused again
				s := s
				entry, ok := wait.ReadEntry(args[2*i])
				require.True(t, ok, args[2*i])
				s.Verb, s.Owner = beliefmodel.Acquire, entry.Owner()
				s.Ticket, _ = strconv.ParseInt(args[2*i+1], 10, 64)
				add(keys[2*i], s)
			}
		}
	case is("-- Remove the named owners from a lock"):
		require.Len(t, args, 4, "no more than one owner is removed at a time")
		s.Verb, s.Owner, s.Said = beliefmodel.Remove, args[3], said(w.Reply[0] == 1)
		add(keys[0], s)
	case is("-- Read everything about a lock"):
		if s.Verb, s.Said = beliefmodel.Look, said(w.Reply[0] != -2); s.Said == beliefmodel.Yes {
			s.Owner, s.Left = w.Words[2], time.Duration(w.Reply[0])*time.Millisecond
		}
		add(keys[0], s)
	default:
		for _, key := range keys { // nothing else is done to these locks
			for _, kind := range leased {
				require.False(t, strings.HasPrefix(key, kind), "%+v", w)
			}
		}
	}
	return steps
}

// What the library does not believe is refused: a moment too long, or by a renewal that was never confirmed.
func TestLeases_HolderBelievesTooLong_AreRefused(t *testing.T) {
	redistest.SkipShort(t)
	p := leasePlan(4)
	r := simulation.Run(t, p, nil)
	_, err := followLeases(t, r, nil)
	require.NoError(t, err)
	says, refused := 0, 0
	for i := range r.Wire {
		w := &r.Wire[i]
		if w.Holds == "" {
			continue
		}
		says++
		until := w.Until
		w.Until = until.Add(12 * time.Millisecond) // without its margin
		if _, err := followLeases(t, r, nil); err != nil {
			refused++
		}
		w.Until = until
	}
	require.Positive(t, says)
	// A belief whose lease was released or handed over meanwhile may last longer without harm; how many of them there are
	// depends on how the simulated goroutines run.
	require.Greater(t, 2*refused, says, "%d of %d", refused, says)
}

// firstLease is the lease that a hand-over writes, by an entry.
func firstLease(t *testing.T, text string) time.Duration {
	t.Helper()
	entry, ok := wait.ReadEntry(text)
	require.True(t, ok, text)
	return entry.First
}
