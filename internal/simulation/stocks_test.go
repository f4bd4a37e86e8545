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
	"github.com/redlatch/redlatch/internal/stockmodel"
)

// What the scripts reply about a stock, and what its ledger has, the model of stocks says, too, step by step.
func TestWhatAStockDoesOnTheWireTheModelOfStocksDoes(t *testing.T) {
	redistest.SkipShort(t)
	steps, sold := 0, 0
	for _, seed := range redistest.Seeds(t, redistest.Sized(2, 2, 200)) {
		n, units, err := followStocks(simulation.Run(t, stockPlan(seed), nil))
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		steps, sold = steps+n, sold+units
	}
	t.Logf("%d steps, %d units sold", steps, sold)
	require.Positive(t, sold)
}

// stockPlan is the plan of a seed, without what has the server forget, or its clock step: back, to before the start of
// a sale, which the model does not know.
func stockPlan(seed uint64) simulation.Plan {
	p := simulation.NewPlan(seed, "sale", "sale")
	p.Wired = true
	p.Steps = slices.DeleteFunc(p.Steps, func(s simulation.Step) bool {
		return slices.Contains([]string{"empty", "failover", "flush-all", "clock"}, string(s.What))
	})
	return p
}

// saleLimit is how many units the simulation's stocks have.
const saleLimit = 12

// followStocks follows what was seen of each stock, and returns in how many steps, and how many units were sold.
func followStocks(r simulation.Result) (n, sold int, err error) {
	stocks := map[string]*stockmodel.Follower{}
	for _, w := range r.Wire {
		if w.Keys != 7 {
			continue
		}
		key := w.Args[0]
		f := stocks[key]
		if f == nil {
			f = stockmodel.NewFollower(saleLimit, w.Server.Add(time.Hour).UnixMilli())
			stocks[key] = f
		}
		did, err := stockStep(f, w)
		if err != nil {
			return n, sold, err
		}
		if did {
			n++
		}
	}
	for _, f := range stocks {
		sold += f.Sold
	}
	return n, sold, nil
}

// number is a decimal of a script, which has no others.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// stockStep takes in what the model knows of one thing that was seen.
func stockStep(f *stockmodel.Follower, w simulation.Wire) (did bool, err error) {
	args, r := w.Args[w.Keys:], w.Reply
	is := func(first string) bool { return strings.HasPrefix(w.Script, first) }
	if w.Read {
		if lines := ledgerLines(w); is("-- Reads the first entries of a stock's ledger") && len(lines) > 0 {
			f.Heard(w.Client, lines[len(lines)-1].Serial)
		}
		return false, nil
	}
	switch {
	case is("-- Acts on requests and reservations"):
		if r[0] != 0 {
			return false, nil
		}
		return true, f.Acts(r[3], args[0], r[2], stockActs(args[3:], r[4:]))
	case is("-- Changes what Open has set"):
		if r[0] != 0 || r[2] != 1 {
			return false, nil
		}
		var end *int64
		var paused *bool
		for i := 3; i < len(args); i += 2 {
			n := number(args[i+1])
			switch args[i] {
			case "end":
				end = &n
			case "paused":
				on := n == 1
				paused = &on
			}
		}
		f.Changed(r[3], r[1], end, paused)
	case is("-- Gives back what is held by reservations"):
		return true, f.Reaped(w.Server.UnixMilli(), r[1])
	case is("-- Reads the records of requests"):
		for i, id := range args {
			if r[0] == 0 && r[1] != 0 && id != "" {
				if err := f.Found(id, w.Words[3+i]); err != nil {
					return true, err
				}
			}
		}
	case is("-- Reads the state of a stock"):
		return true, f.Status(r[2], r[3], r[10])
	case is("-- Reads the first entries of a stock's ledger"):
		return true, f.Read(ledgerLines(w))
	case is("-- Removes the first entries of a stock's ledger"):
		last, _, _ := strings.Cut(args[0], "-")
		return true, f.Removed(w.Client, int(number(last)), r[1])
	default:
		return false, nil
	}
	return true, nil
}

// stockActs are the acts of a call, which begin in args, and what they were answered.
func stockActs(args []string, reply []int64) (acts []stockmodel.Act) {
	for len(args) > 0 {
		a := stockmodel.Act{ID: args[1], Last: number(args[2]), Outcome: int32(reply[0])}
		n := map[string]int{"R": 6, "V": 6, "O": 5, "U": 5, "X": 3}[args[0]]
		if n == 0 {
			n = 4
		}
		switch verb := args[0]; verb {
		case "R", "V", "O", "U":
			a.Ask = stockmodel.Ask{Verb: stockmodel.Reserve, N: int32(number(args[4])), Part: verb == "V" || verb == "U"}
			if n == 6 {
				a.MS = number(args[5])
			} else {
				a.Ask.Verb = stockmodel.Claim
			}
			a.Ordinal, a.N = int32(reply[1]), int32(reply[2])
		case "C":
			a.Ask = stockmodel.Ask{Verb: stockmodel.Confirm, N: int32(number(args[3]))}
			a.Ordinal, a.N = int32(reply[1]), int32(reply[2])
		case "E":
			a.Ask.Verb, a.MS = stockmodel.Extend, number(args[3])
			a.Ordinal, a.N = int32(reply[1]), int32(reply[2])
		case "X":
			a.Ask.Verb, a.N = stockmodel.Cancel, int32(reply[1])
		case "B":
			a.Ask, a.N = stockmodel.Ask{Verb: stockmodel.Return, N: int32(number(args[3]))}, int32(reply[1])
		}
		acts = append(acts, a)
		args, reply = args[n:], reply[5:]
	}
	return acts
}

// ledgerLines are the entries in a reply of the script that reads a ledger.
func ledgerLines(w simulation.Wire) (lines []stockmodel.Line) {
	for _, word := range slices.Collect(slices.Chunk(w.Words[min(3, len(w.Words)):], 15)) {
		serial, _, _ := strings.Cut(word[0], "-")
		l := stockmodel.Line{Serial: int(number(serial))}
		for i := 1; i+1 < len(word); i += 2 {
			switch word[i] {
			case "k":
				l.Kind = word[i+1]
			case "o":
				l.Ordinal = int32(number(word[i+1]))
			case "n":
				l.N = int32(number(word[i+1]))
			case "r":
				l.Request = word[i+1]
			}
		}
		lines = append(lines, l)
	}
	return lines
}

// A script with a planted fault does what the model does not. By default two of the faults are planted.
func TestTheModelOfStocksRefusesPlantedFaults(t *testing.T) {
	redistest.SkipShort(t)
	tried := 0
	quick := []string{"the end of a hold is not in the ledger", "an extension ends a hold"}
	names := redistest.Sized(quick, quick, nil)
	for i := range simulation.Mutants {
		m := &simulation.Mutants[i]
		if m.Kinds[0] != "sale" || names != nil && !slices.Contains(names, m.Name) {
			continue
		}
		tried++
		t.Run(m.Name, func(t *testing.T) {
			for seed := uint64(1); seed <= 400; seed++ {
				if _, _, err := followStocks(simulation.Run(t, stockPlan(seed), m)); err != nil {
					t.Logf("by seed %d: %v", seed, err)
					return
				}
			}
			t.Error("no seed of 400 is refused")
		})
	}
	require.Positive(t, tried)
}
