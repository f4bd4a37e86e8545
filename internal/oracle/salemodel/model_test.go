package salemodel_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/oracle/salemodel"
)

const (
	end      = 2000
	remember = 5000
)

// opened is a sale of 3 units, of which a user may have 2, and of 5 units of the item a. It is open until end.
func opened() *salemodel.Sale {
	return &salemodel.Sale{End: end, Remember: remember, Orders: map[string]*salemodel.Order{},
		Items: map[string]*salemodel.Item{"": {Limit: 3, PerUser: 2}, "a": {Limit: 5, PerUser: 5}}}
}

func units(n int64) []salemodel.Line { return []salemodel.Line{{Asked: n}} }

// does does verbs to the order o of ann, of 2 units. The word "later" lets a second pass.
func does(m *salemodel.Sale, verbs string) (out salemodel.Outcome) {
	for verb := range strings.FieldsSeq(verbs) {
		if verb == "later" {
			m.Now += 1000
			m.Tick()
			continue
		}
		a := salemodel.Act{Verb: verb, ID: "o", User: "ann", MS: 900}
		switch verb {
		case "buy", "reserve":
			a.Lines = units(2)
		case "extend":
			a.MS = 950
		}
		out = m.Do(a)
	}
	return out
}

// text is the order o as the server keeps it, or "none".
func text(m *salemodel.Sale) string {
	if o := m.Orders["o"]; o != nil {
		return o.Text("o")
	}
	return "none"
}

// documented is the table of docs/design/sales.md: what has become of an order after buy, reserve, extend, pay, cancel,
// return and status, by what was done to it before.
var documented = map[string][7]string{
	"": {"S;,2,2,1;ann", "R900;,2,2,0;ann", "none", "F;;", "F;;", "F;;", "none"},
	"reserve": {"R900;,2,2,0;ann", "R900;,2,2,0;ann", "R950;,2,2,0;ann", "S;,2,2,1;ann", "C;,2,2,0;ann", "C;,2,2,0;ann",
		"R900;,2,2,0;ann"},
	"reserve later": {"L;,2,2,0;ann", "L;,2,2,0;ann", "L;,2,2,0;ann", "S;,2,2,1;ann", "C;,2,2,0;ann", "C;,2,2,0;ann",
		"L;,2,2,0;ann"},
	"buy": {"S;,2,2,1;ann", "S;,2,2,1;ann", "S;,2,2,1;ann", "S;,2,2,1;ann", "S;,2,2,1;ann", "G;,2,0,1;ann",
		"S;,2,2,1;ann"},
	"reserve cancel":          closed("C;,2,2,0;ann"),
	"reserve later later pay": closed("E;,2,2,0;ann"),
	"buy return":              closed("G;,2,0,1;ann"),
	"pay":                     closed("F;;"),
}

// closed is the row of an order that is closed: it stays as it is.
func closed(text string) [7]string { return [7]string{text, text, text, text, text, text, text} }

func TestSale_EachVerbInEachState_DoesWhatTheTableSays(t *testing.T) {
	for before, after := range documented {
		for i, verb := range []string{"buy", "reserve", "extend", "pay", "cancel", "return", "status"} {
			m := opened()
			does(m, before)
			require.Equal(t, salemodel.Answered, does(m, verb), "%s, %s", before, verb)
			require.Equal(t, after[i], text(m), "%s, %s", before, verb)
			sold, reserved := int64(0), int64(0)
			switch after[i][0] {
			case 'S':
				sold = 2
			case 'R':
				reserved = 2
			}
			is := m.Items[""]
			require.Equal(t, []int64{sold, reserved}, []int64{is.Sold, is.Reserved}, "%s, %s", before, verb)

			require.Equal(t, salemodel.Answered, does(m, verb), "%s, %s again", before, verb)
			require.Equal(t, after[i], text(m), "%s, %s again", before, verb)
		}
	}
}

// While nothing new is sold, reserved orders can be paid, and payments for lapsed ones wait or are in vain.
func TestSale_Window_RefusesNewOrdersAndLatePayments(t *testing.T) {
	for name, window := range map[string]struct {
		set            func(m *salemodel.Sale)
		fresh, late    salemodel.Outcome
		afterLate, now string
	}{
		"not started": {func(m *salemodel.Sale) { m.Start = 1500 }, salemodel.NotStarted, salemodel.NotStarted,
			"L;,2,2,0;ann", "S;,2,2,1;ann"},
		"paused": {func(m *salemodel.Sale) { m.Phase = salemodel.Paused }, salemodel.IsPaused, salemodel.IsPaused,
			"L;,2,2,0;ann", "S;,2,2,1;ann"},
		"ended": {func(m *salemodel.Sale) { m.Phase = salemodel.Over }, salemodel.Ended, salemodel.Answered,
			"E;,2,2,0;ann", "S;,2,2,1;ann"},
		"over by its time": {func(m *salemodel.Sale) { m.End = 500 }, salemodel.Ended, salemodel.Answered,
			"E;,2,2,0;ann", "S;,2,2,1;ann"},
	} {
		for _, verb := range []string{"buy", "reserve"} {
			m := opened()
			m.Now = 500
			window.set(m)
			require.Equal(t, window.fresh, does(m, verb), name)
			require.Equal(t, "none", text(m), name)
		}
		m := opened()
		does(m, "reserve")
		window.set(m)
		require.Equal(t, salemodel.Answered, does(m, "pay"), name)
		require.Equal(t, window.now, text(m), name)
		m = opened()
		does(m, "reserve later")
		window.set(m)
		require.Equal(t, window.late, does(m, "pay"), name)
		require.Equal(t, window.afterLate, text(m), name)
	}
}

// taken are the units of an order, or why it was refused.
func taken(m *salemodel.Sale, a salemodel.Act) string {
	if out := m.Do(a); out != salemodel.Answered {
		return string(out)
	}
	return m.Orders[a.ID].Text(a.ID)
}

func TestSale_UnitsOfAnOrder_AreAllOrNoneUnlessUpTo(t *testing.T) {
	both := []salemodel.Line{{Item: "a", Asked: 2}, {Asked: 2}}
	for name, row := range map[string]struct {
		act  salemodel.Act
		want string
	}{
		"two, and one is left":    {salemodel.Act{ID: "o", Lines: units(2)}, "sold out"},
		"up to two":               {salemodel.Act{ID: "o", Lines: units(2), UpTo: true}, "S;,2,1,3;"},
		"more than there were":    {salemodel.Act{ID: "o", Lines: []salemodel.Line{{Item: "a", Asked: 6}}}, "sold out"},
		"of an unknown item":      {salemodel.Act{ID: "o", Lines: []salemodel.Line{{Item: "b", Asked: 1}}}, "no such item"},
		"the user has all it may": {salemodel.Act{ID: "o", User: "ann", Lines: units(1)}, "user limit"},
		"the same, up to one":     {salemodel.Act{ID: "o", User: "ann", Lines: units(1), UpTo: true}, "user limit"},
		"one line of two fits":    {salemodel.Act{ID: "o", Lines: both}, "sold out"},
		"up to two of each":       {salemodel.Act{ID: "o", Lines: both, UpTo: true}, "S;a,2,2,1|,2,1,3;"},
		"by the user's own name":  {salemodel.Act{ID: "cid", User: "cid", Lines: units(1)}, "3"},
		"the id is of another":    {salemodel.Act{ID: "x", User: "bob", Lines: units(2)}, "mismatch"},
		"the order had others":    {salemodel.Act{ID: "x", User: "ann", Lines: units(1)}, "mismatch"},
		"the order had the same":  {salemodel.Act{ID: "x", User: "ann", Lines: units(2)}, "S;,2,2,1;ann"},
	} {
		m := opened()
		require.Equal(t, "S;,2,2,1;ann", taken(m, salemodel.Act{Verb: "buy", ID: "x", User: "ann", Lines: units(2)}))
		row.act.Verb = "buy"
		require.Equal(t, row.want, taken(m, row.act), name)
	}
}

// An order with its user's name is no field of the table, but the user's other orders count it.
func TestSale_UnitsOfAUser_AreThoseOfAllItsOrders(t *testing.T) {
	m := opened()
	require.Equal(t, "1", taken(m, salemodel.Act{Verb: "buy", ID: "ann", User: "ann", Lines: units(1)}))
	require.Equal(t, map[string]string{"ann": "1"}, m.Table())
	more := salemodel.Act{Verb: "buy", ID: "o", User: "ann", Lines: units(2), UpTo: true}
	require.Equal(t, "S;,2,1,2;ann", taken(m, more))
	require.Equal(t, map[string]string{"ann": "1", "o": "S;,2,1,2;ann", "\x00,ann": "1"}, m.Table())
	require.Equal(t, []int64{2, 1}, []int64{m.Has("ann", "", false), m.Has("ann", "", true)})
	require.Equal(t, "user limit", taken(m, salemodel.Act{Verb: "reserve", ID: "p", User: "ann", Lines: units(1)}))
	m.Do(salemodel.Act{Verb: "return", ID: "ann"})
	require.Equal(t, map[string]string{"ann": "G;,1,0,1;ann", "o": "S;,2,1,2;ann", "\x00,ann": "1"}, m.Table())
	require.Equal(t, "R100;,1,1,0;ann", taken(m, salemodel.Act{Verb: "reserve", ID: "p", User: "ann", Lines: units(1),
		MS: 100}))
}

func TestPay_Part_SellsThatPartAndGivesTheRestBack(t *testing.T) {
	cart := []salemodel.Line{{Item: "a", Asked: 2}, {Asked: 2}}
	reserved := func() *salemodel.Sale {
		m := opened()
		m.Do(salemodel.Act{Verb: "reserve", ID: "o", Lines: cart, MS: 900})
		return m
	}
	pay := func(m *salemodel.Sale, lines ...salemodel.Line) string {
		return taken(m, salemodel.Act{Verb: "pay", ID: "o", Lines: lines})
	}
	require.Equal(t, "S;a,2,1,1|,2,0,0;", pay(reserved(), salemodel.Line{Item: "a", Asked: 1}))
	require.Equal(t, "S;a,2,2,1|,2,2,1;", pay(reserved(), salemodel.Line{Item: "a", Asked: 9}, salemodel.Line{Asked: 2}))
	require.Equal(t, "mismatch", pay(reserved(), salemodel.Line{Item: "b", Asked: 1}))
	m := reserved()
	pay(m, salemodel.Line{Item: "a", Asked: 1})
	require.Equal(t, salemodel.Item{Limit: 3, PerUser: 2}, *m.Items[""])
	require.Equal(t, salemodel.Item{Limit: 5, PerUser: 5, Sold: 1, Seq: 1}, *m.Items["a"])
	require.Equal(t, "S;a,2,1,1|,2,0,0;", pay(m), "the first decision stands")

	m = reserved()
	does(m, "later")
	require.Equal(t, "mismatch", pay(m, salemodel.Line{Item: "b", Asked: 1}))
	m.Do(salemodel.Act{Verb: "buy", ID: "other", Lines: units(2)})
	require.Equal(t, "S;a,2,2,1|,2,1,3;", pay(m), "as many as are left")
}

func TestReturn_Part_KeepsTheFirstUnitsAndReusesNoOrdinal(t *testing.T) {
	m := opened()
	buy := salemodel.Act{Verb: "buy", ID: "o", Lines: []salemodel.Line{{Item: "a", Asked: 5}}}
	require.Equal(t, "S;a,5,5,1;", taken(m, buy))
	keep := salemodel.Act{Verb: "return", ID: "o", Lines: []salemodel.Line{{Item: "a", Asked: 3}}}
	require.Equal(t, "S;a,5,3,1;", taken(m, keep))
	require.Equal(t, "S;a,5,3,1;", taken(m, keep))
	require.Equal(t, "S;a,1,1,6;", taken(m, salemodel.Act{Verb: "buy", ID: "p", Lines: []salemodel.Line{{Item: "a",
		Asked: 1}}}))
	require.Equal(t, "G;a,5,0,1;", taken(m, salemodel.Act{Verb: "return", ID: "o"}))
	require.Equal(t, salemodel.Item{Limit: 5, PerUser: 5, Sold: 1, Seq: 6}, *m.Items["a"])
}

// Ranges of an order of Anyone come back in any order, and no unit twice.
func TestReturn_RangesOfAnyone_LeaveTheRest(t *testing.T) {
	m := opened()
	m.Do(salemodel.Act{Verb: "buy", ID: "~c", Lines: []salemodel.Line{{Item: "a", Asked: 5}}})
	for _, step := range []struct {
		first, n, sold int64
		want           string
	}{
		{2, 2, 3, "S;a,5,1,1|a,0,2,4;"}, {2, 2, 3, "S;a,5,1,1|a,0,2,4;"}, {1, 1, 2, "S;a,5,0,1|a,0,2,4;"},
		{3, 2, 1, "S;a,5,0,1|a,0,0,4|a,0,1,5;"}, {1, 5, 0, "G;a,5,0,1|a,0,0,4|a,0,0,5;"},
	} {
		a := salemodel.Act{Verb: "part", ID: "~c", First: step.first, N: step.n}
		require.Equal(t, step.want, taken(m, a))
		require.Equal(t, step.sold, m.Items["a"].Sold)
	}
	require.Equal(t, "F;;", taken(m, salemodel.Act{Verb: "part", ID: "~d", First: 1, N: 1}))
}

// A deadline's millisecond belongs to the reservation, and that of Remember to the record.
func TestTick_EachInstant_BelongsToWhatLastsUntilThen(t *testing.T) {
	m := opened()
	does(m, "reserve")
	m.Now = 900
	m.Tick()
	require.Equal(t, "R900;,2,2,0;ann", text(m))
	m.Now = 901
	m.Tick()
	require.Equal(t, "L;,2,2,0;ann", text(m))
	require.Zero(t, m.Items[""].Reserved)
	m.Now = 901 + remember
	m.Tick()
	require.Equal(t, "L;,2,2,0;ann", text(m))
	m.Now++
	m.Tick()
	require.Equal(t, "none", text(m))
	m.End = m.Now + 1
	require.Equal(t, salemodel.Answered, does(m, "buy"), "an id that was forgotten is a new one")
	m.Now += 10 * remember
	m.Tick()
	require.Equal(t, "S;,2,2,1;ann", text(m), "what is sold is not forgotten")
}

func TestExtend_ShorterThanTheDeadline_ChangesNothing(t *testing.T) {
	m := opened()
	does(m, "reserve")
	m.Do(salemodel.Act{Verb: "extend", ID: "o", MS: 100})
	require.Equal(t, "R900;,2,2,0;ann", text(m))
}

// To keep units of an order that is not sold decides nothing.
func TestReturn_KeepOfAnOrderThatIsNotSold_ChangesNothing(t *testing.T) {
	for before, want := range map[string]string{"": "none", "reserve": "R900;,2,2,0;ann",
		"reserve later": "L;,2,2,0;ann"} {
		m := opened()
		does(m, before)
		require.Equal(t, salemodel.Answered, m.Do(salemodel.Act{Verb: "return", ID: "o", Lines: units(1)}))
		require.Equal(t, want, text(m), before)
	}
}

// A user has more than it may after its limit was lowered: it keeps that, and gets nothing more.
func TestSale_UserLimitLowered_RefusesWithoutTakingBack(t *testing.T) {
	m := opened()
	does(m, "buy")
	m.Items[""].PerUser = 1
	more := salemodel.Act{Verb: "buy", ID: "p", User: "ann", Lines: units(1), UpTo: true}
	require.Equal(t, "user limit", taken(m, more))
	require.Equal(t, "S;,2,2,1;ann", text(m))
	require.EqualValues(t, 2, m.Items[""].Sold)
}

// Where as many are left as the user may have, and that is too few, the order is sold out.
func TestSale_LeftAndAllowedAreEqual_IsSoldOut(t *testing.T) {
	m := opened()
	does(m, "buy")
	three := salemodel.Act{Verb: "buy", ID: "p", User: "bob", Lines: units(3)}
	m.Items[""].PerUser = 1
	require.Equal(t, "sold out", taken(m, three))
}
