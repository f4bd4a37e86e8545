package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/oracle/salemodel"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// saleJudge has a sale's model (internal/oracle/salemodel) do what the server ran, in its order, and compares each
// reply. What the server forgets, the model forgets. When Restore is through, the model is what the entries in the
// database make of a sale.
type saleJudge struct {
	saleState
	rows         []stock.Entry // of the database, in the end
	ledger       bool
	durable      bool      // clients have MinReplicas
	copied       saleState // what the replica has that takes the server's place
	doubtful     bool      // the server has forgotten something, and there was no Restore since
	everDoubtful bool
	forgotten    map[string]bool   // orders that a loss has changed
	told         map[string][]told // what was replied of each order
	restored     int
}

// saleState is a sale on a server.
type saleState struct {
	*salemodel.Sale
	gone      bool // the server has nothing. The model stays, to tell what is forgotten
	suspended bool
	revision  int64
	round     string
	anew      map[string]string // what Restore begins with, where the sale was gone
}

// told is a reply about an order.
type told struct {
	at     time.Time
	answer string
}

// answerText is an answer but for its id, times, and what is left where it is refused.
func answerText(a stock.Answer) string {
	if a.State == stock.Refused {
		a.User, a.Lines = "", nil
	}
	return fmt.Sprintf("%s %s of %q: %v", a.State, a.Why, a.User, a.Lines)
}

// judgeSale follows a sale, and compares with its model what the server has in the end, what the database has, and
// what each client was answered. No customer has paid without a unit or the money.
func (w *world) judgeSale(o *object) {
	j := saleJudge{durable: w.plan.Durable, saleState: saleState{Sale: &salemodel.Sale{}, gone: true},
		told: map[string][]told{}, forgotten: map[string]bool{}}
	if b := o.shop.base; b != nil {
		j.rows, j.ledger = b.All, true
	}
	w.net.mu.Lock()
	wire := slices.Clone(w.net.wire)
	w.net.mu.Unlock()
	for i := range wire {
		if err := j.follow("rc:{"+o.name+"}:sale", &wire[i]); err != nil {
			w.violated("%s, at %s: %v", o.name, w.at(wire[i].At), err)
			return
		}
	}
	for _, text := range slices.Concat(j.end(w.nodes[0], o.name), j.answers(o.calls.all()), j.books(o)) {
		w.violated("%s: %s", o.name, text)
	}
	w.count(func(f *Figures) {
		f.Followed, f.Restored, f.Forgotten = f.Followed+1, f.Restored+j.restored, f.Forgotten+len(j.forgotten)
	})
}

// follow takes in one thing that was seen.
func (j *saleJudge) follow(key string, w *Wire) error {
	switch {
	case w.Copied:
		j.copied = j.saleState
		j.copied.Sale = j.Clone()
	case w.Back:
		was := j.saleState
		j.saleState = j.copied
		j.Sale = j.Clone()
		if !j.durable {
			j.doubtful, j.everDoubtful = true, true
			return j.compare(was.Sale, w.Server.UnixMilli())
		}
	case w.Flush:
		j.gone, j.suspended, j.round = true, false, ""
		j.doubtful, j.everDoubtful = true, true
	case !w.Read && len(w.Args) > 0 && w.Args[0] == key && len(w.Reply) > 2:
		return j.ran(w)
	}
	return nil
}

// compare notes the orders that a loss or Restore has changed. Where the server has lost nothing there are none.
func (j *saleJudge) compare(was *salemodel.Sale, now int64) error {
	was, is := was.Clone(), j.Clone()
	now = max(now, was.Now, is.Now)
	was.Now, is.Now = now, now
	was.Tick()
	is.Tick()
	for _, m := range []*salemodel.Sale{was, is} {
		for id := range m.Orders {
			if was.Record(id) == is.Record(id) {
				continue
			}
			if !j.doubtful {
				return fmt.Errorf("the order %s was %q and is now %q", id, was.Record(id), is.Record(id))
			}
			j.forgotten[id] = true
		}
	}
	return nil
}

// ran takes in a script that the server has run.
func (j *saleJudge) ran(w *Wire) error {
	args, r := w.Args[w.Keys:], w.Reply
	is := func(first string) bool { return strings.HasPrefix(w.Script, "-- "+first) }
	switch {
	case is("Removes the first entries"), r[0] == 0 && is("Reads the first entries"):
		return nil
	case is("A step of Restore"):
		return j.step(args, r)
	case r[0] == -6 && j.gone, r[0] == -10 && j.suspended, r[0] == -11, r[0] == -12:
		return nil
	case is("Opens a sale") && r[0] == 0 && j.gone:
		return j.opened(args, r[2])
	case r[0] != 0 || j.gone || j.suspended && !is("Reads what"):
		return fmt.Errorf("%s: %v, and the sale is gone: %v, suspended: %v", w.Script, r[:3], j.gone, j.suspended)
	case is("Does something to orders"):
		return j.acts(w, args[2:])
	case is("Buys a unit"):
		var acts []string
		for _, user := range args[1:] {
			acts = append(acts, "B", user, "0", user, ",1")
		}
		return j.acts(w, acts)
	case is("Changes what Open has set"):
		j.changed(args[3:], r)
	case is("Reads what") && !j.suspended:
		j.Now = w.Server.UnixMilli()
		j.Tick()
	}
	return nil
}

// opened begins a sale whose items, limits and times are args as open.lua takes them.
func (j *saleJudge) opened(args []string, now int64) error {
	was := j.Sale
	start := now + number(args[1])
	j.saleState = saleState{Sale: &salemodel.Sale{Start: start, End: start + number(args[2]), Remember: number(args[4]),
		Items: map[string]*salemodel.Item{}, Orders: map[string]*salemodel.Order{}}}
	for a := range slices.Chunk(args[7:], 3) {
		j.Items[a[0]] = &salemodel.Item{Limit: number(a[1]), PerUser: number(a[2])}
	}
	return j.compare(was, now)
}

// changed takes in a Change: revisions count them, so that a second run is known.
func (j *saleJudge) changed(args []string, r []int64) {
	if r[2] != 1 || r[1] <= j.revision {
		return
	}
	j.revision, j.Now = r[1], r[3]
	j.Tick()
	for a := range slices.Chunk(args, 3) {
		switch a[0] {
		case "end":
			j.End = j.Now + number(a[2])
		case "paused":
			j.Phase = map[string]int{"1": salemodel.Paused, "0": salemodel.Open}[a[2]]
		}
	}
}

// step takes in a step of Restore.
func (j *saleJudge) step(args []string, r []int64) error {
	isLast := args[1] == j.round
	switch {
	case r[0] != 0: // refused
	case args[0] == "suspend" && !isLast:
		if j.round, j.suspended = args[1], true; j.gone {
			j.gone, j.anew = false, pairs(args[4:])
		}
	case args[0] == "resume" && isLast && j.suspended:
		return j.resume(pairs(args[5:]), r[2]/1000)
	}
	return nil
}

// fold is what the first rows of the database make of a sale of the model's items, with these limits.
func (j *saleJudge) fold(rows int, limits map[string]string) (*salemodel.Sale, error) {
	items := map[string]*salemodel.Item{}
	for name, item := range j.Items {
		items[name] = &salemodel.Item{Limit: item.Limit, PerUser: item.PerUser}
		if limit, ok := limits["limit:"+name]; ok {
			items[name].Limit = number(limit)
		}
	}
	return salemodel.Fold(j.rows[:rows], items)
}

// resume has the model be what the entries make of a sale, of which Restore sets some numbers.
func (j *saleJudge) resume(set map[string]string, now int64) error {
	was := j.Sale
	m, err := j.fold(int(number(set["serial"])), set)
	if err != nil {
		return err
	}
	m.Start, m.End, m.Phase, m.Remember = was.Start, was.End, was.Phase, was.Remember
	if j.anew != nil {
		m.Start, m.End, m.Phase = number(j.anew["start"]), number(j.anew["end"]), salemodel.Open
	}
	j.saleState = saleState{Sale: m, round: j.round, revision: number(set["revision"])}
	err = j.compare(was, now)
	j.doubtful = false
	j.restored++
	return err
}

// codes are the outcomes as act.lua has them.
var codes = map[salemodel.Outcome]string{salemodel.Answered: "0", salemodel.SoldOut: "3", salemodel.NotStarted: "5",
	salemodel.Ended: "6", salemodel.UserLimit: "7", salemodel.IsPaused: "12", salemodel.Mismatch: "-3",
	salemodel.NoItem: "-7"}

// acts takes in a call of acts, as act.lua has them.
func (j *saleJudge) acts(w *Wire, args []string) error {
	j.Now = w.Reply[2]
	j.Tick()
	for reply := range slices.Chunk(w.Words[3:], 3) {
		a, n := actOf(args)
		isUnknown := reply[0] == "-9" && j.Orders[a.ID] == nil && args[n-1] == "0"
		if isLate := number(args[2]) > 0 && j.Now > number(args[2]); isUnknown || reply[0] == "-11" && isLate {
			args = args[n:]
			continue
		}
		before := j.Record(a.ID)
		outcome := j.Do(a)
		is := j.Record(a.ID)
		again := "1"
		if is != before {
			again = "0"
		}
		if outcome != salemodel.Answered {
			is = reply[1] // what is left
		}
		if want := []string{codes[outcome], is, again}; !slices.Equal(want, reply) {
			return fmt.Errorf("%v of %q was replied %q, and the model answers %q", args[:n], before, reply, want)
		}
		answer := j.Answer(a.ID)
		if outcome != salemodel.Answered {
			answer = stock.Answer{State: stock.Refused, Why: string(outcome)}
		}
		j.told[a.ID] = append(j.told[a.ID], told{w.At, answerText(answer)})
		args = args[n:]
	}
	return nil
}

// verbs are those of act.lua by their letters, with how many arguments each has.
var verbs = map[string]struct {
	verb string
	args int
}{"B": {"buy", 5}, "R": {"reserve", 6}, "E": {"extend", 4}, "P": {"pay", 5}, "C": {"cancel", 4}, "G": {"return", 5},
	"A": {"part", 5}, "S": {"status", 3}}

// actOf is the first of some acts, and how many arguments it has.
func actOf(args []string) (a salemodel.Act, n int) {
	a.Verb, a.ID, n = verbs[args[0]].verb, args[1], verbs[args[0]].args
	lines := ""
	switch args[0] {
	case "B":
		a.User, lines = args[3], args[4]
	case "R":
		a.User, lines, a.MS = args[3], args[4], number(args[5])
	case "E":
		a.MS = number(args[3])
	case "P", "G":
		lines = args[3]
	case "A":
		a.First, a.N = number(args[3]), number(args[4])
	}
	lines, a.UpTo = strings.CutPrefix(lines, "+")
	for line := range strings.SplitSeq(lines, "|") {
		if item, n, ok := strings.Cut(line, ","); ok {
			a.Lines = append(a.Lines, salemodel.Line{Item: item, Asked: number(n)})
		}
	}
	return a, n
}

// answers are what clients were answered and no reply says. Two callers that bought for Anyone never have one unit.
func (j *saleJudge) answers(calls []*entry) (wrong []string) {
	owners := map[stock.Line]string{}
	for _, e := range calls {
		text := answerText(e.answer)
		switch {
		case e.err != nil || e.done.IsZero():
		case e.what == anyone && e.answer.Won() && !j.everDoubtful:
			for _, l := range e.answer.Lines {
				if l.N = 1; owners[l] != "" {
					wrong = append(wrong, fmt.Sprintf("%v is sold to %s and %s", l, owners[l], e.answer.ID))
				}
				owners[l] = e.answer.ID
			}
		case e.key != "" && e.key[0] != '~' && !slices.ContainsFunc(j.told[e.key], func(t told) bool {
			return t.answer == text && !t.at.Before(e.began) && !t.at.After(e.done)
		}):
			wrong = append(wrong, fmt.Sprintf("step %d: %s of %s was answered %s, of %v", e.step, e.what, e.key, text,
				j.told[e.key]))
		}
	}
	return wrong
}

// end compares what the server and the database have in the end with the model.
func (j *saleJudge) end(n *node, name string) (wrong []string) {
	if j.gone {
		if j.ledger {
			wrong = append(wrong, "Restore has not brought it back")
		}
		return wrong
	}
	keys := n.copy().keys
	if has, want := keys["rc:{"+name+"}:orders"].fields, j.Table(); !maps.Equal(has, want) {
		wrong = append(wrong, fmt.Sprintf("the server has the orders %v, and the model %v", has, want))
	}
	for item, is := range j.Items {
		fields := keys["rc:{"+name+"}:sale"].fields
		has := [3]int64{number(fields["sold:"+item]), number(fields["reserved:"+item]), number(fields["seq:"+item])}
		if has != [3]int64{is.Sold, is.Reserved, is.Seq} {
			wrong = append(wrong, fmt.Sprintf("the server has %v of %q, and the model %+v", has, item, *is))
		}
	}
	if m, err := j.fold(len(j.rows), nil); j.ledger && (err != nil || !maps.Equal(m.Table(), j.Table())) {
		wrong = append(wrong, fmt.Sprintf("the database %v makes another sale than %v: %v", j.rows, j.Table(), err))
	}
	return wrong
}

// books compares what customers have paid with their units and what the bank has paid back. An order that the server
// has forgotten is excused.
func (j *saleJudge) books(o *object) (wrong []string) {
	bought := map[string]bool{} // by Buy, and paid for elsewhere
	for _, e := range o.calls.all() {
		bought[e.key] = bought[e.key] || e.what == buy
	}
	for id, paid := range o.shop.paid {
		is, has := j.Orders[id], map[string]int64{}
		switch {
		case j.forgotten[id]:
			continue
		case is == nil || is.State == 'R' || is.State == 'L':
			wrong = append(wrong, fmt.Sprintf("%s was paid for, and nothing was decided: %q", id, j.Record(id)))
		case is.State == 'S':
			for _, l := range is.Lines {
				has[l.Item] = l.N
			}
		}
		for item := range saleItems {
			paid, has, back := paid[item], has[item], o.shop.back[id][item]
			if back != paid-min(paid, has) || !bought[id] && has > paid {
				wrong = append(wrong, fmt.Sprintf("of %q, %d were paid for and %d paid back, and %s is %q", item, paid, back, id,
					j.Record(id)))
			}
		}
	}
	return wrong
}

func pairs(list []string) map[string]string {
	m := map[string]string{}
	for p := range slices.Chunk(list, 2) {
		m[p[0]] = p[1]
	}
	return m
}

// number is a decimal of a script, which has no others.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
