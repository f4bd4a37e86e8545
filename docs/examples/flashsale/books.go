package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// outcome is what became of one claim, as a worker answers it.
type outcome string

const (
	granted  outcome = "granted"  // took a unit just now
	replayed outcome = "replayed" // the user holds a unit already; the ordinal is the one it got then
	soldOut  outcome = "soldout"
	failed   outcome = "failed" // no answer: Redis could not be asked for long enough, or refused
)

// answer is a worker's line about one claim.
type answer struct {
	line    int64
	outcome outcome
	ordinal int64
	cents   int64 // of a red packet
	took    time.Duration
	err     string // why it failed
	asked   bool   // it failed because Redis did not answer: the unit may have been taken all the same
}

// sold says what the server knew of the stock at one moment.
type sold struct {
	limit int64 // units there are
	count int64 // units taken
	last  int64 // highest ordinal given out so far
	cents int64 // of a red packet: how much was taken
	epoch int64 // which opening of the stock this is
}

// win is one unit and the user that got it.
type win struct {
	ordinal int64
	user    string
}

// books counts what was read and what was answered, and finds contradictions. It keeps all winners. Of the other users
// it keeps only as many as the check can need: at most as many as the stock has units, however long the input is.
//
// A replayed answer is not a contradiction. The worker that was granted the unit may have been killed before it could
// say so, and the one after it asks again; or two lines of one user were answered in the other order by two workers.
// So the first answer that names a new ordinal is the win, whatever it is called, and later ones for the same user
// are "already had one". An ordinal that had been given out before the run began belongs to a user who won earlier.
type books struct {
	mu    sync.Mutex
	start sold // before the first claim of this run
	open  bool // start is set

	read      int64 // lines that should be claims: claims and malformed
	malformed int64
	already   int64
	soldOut   int64
	failed    int64
	latency   latencies
	lastOK    time.Time // when a claim was last answered

	wins    []win
	byUser  map[string]int64
	byUnit  map[int64]string
	cents   map[int64]int64     // by unit, of a red packet
	earlier map[string]int64    // users found to have won before the run
	users   map[string]struct{} // distinct users read, until there are as many as units
	faults  []string
	nFaults int64
}

const maxFaults = 20 // how many are spelled out; the rest are counted

func newBooks() *books {
	return &books{byUser: map[string]int64{}, byUnit: map[int64]string{}, cents: map[int64]int64{},
		earlier: map[string]int64{}, users: map[string]struct{}{}}
}

// opened records the state of the stock before the first claim. Only the first call counts.
func (b *books) opened(s sold, now time.Time) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		return false
	}
	b.start, b.open, b.lastOK = s, true, now
	return true
}

func (b *books) fault(format string, args ...any) {
	b.nFaults++
	if len(b.faults) < maxFaults {
		b.faults = append(b.faults, fmt.Sprintf(format, args...))
	}
}

// took records a claim that will be sent next.
func (b *books) took(c claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read++
	if int64(len(b.users)) < b.start.limit {
		b.users[c.user] = struct{}{}
	}
}

func (b *books) skipped() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read++
	b.malformed++
}

// answered records the answer to c, and reports how long no claim at all has been answered.
func (b *books) answered(c claim, a answer, now time.Time) (silence time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.latency.add(a.took)
	if a.outcome == failed {
		b.failed++
		return now.Sub(b.lastOK)
	}
	b.lastOK = now
	b.enter(c.user, a)
	return 0
}

func (b *books) enter(user string, a answer) {
	mine, won := b.byUser[user]
	if a.outcome == soldOut {
		if before, ok := b.earlier[user]; ok && !won {
			mine, won = before, true
		}
		if won {
			b.fault("user %q holds unit %d and got the answer that all are sold", user, mine)
			b.already++
			return
		}
		b.soldOut++
		return
	}
	holder, taken := b.byUnit[a.ordinal]
	switch {
	case won && mine == a.ordinal:
		if was := b.cents[mine]; was != a.cents {
			b.fault("user %q holds unit %d of %s and got the answer %s", user, mine, money(was), money(a.cents))
		}
		b.already++
		return
	case won:
		b.fault("user %q won twice: units %d and %d", user, mine, a.ordinal)
	case taken:
		b.fault("unit %d was given twice: to %q and to %q", a.ordinal, holder, user)
	case a.ordinal < 1:
		b.fault("user %q won unit %d, and there is no such unit", user, a.ordinal)
	case a.ordinal <= b.start.last && a.outcome == granted:
		b.fault("unit %d was given twice: before this run and to %q", a.ordinal, user)
	case a.ordinal <= b.start.last:
		b.earlier[user] = a.ordinal
		b.already++
		return
	}
	b.wins = append(b.wins, win{a.ordinal, user})
	if !won {
		b.byUser[user] = a.ordinal
	}
	if !taken {
		b.byUnit[a.ordinal] = user
		if a.cents != 0 {
			b.cents[a.ordinal] = a.cents
		}
	}
}

// amounts is how much every unit won was worth, of a red packet.
func (b *books) amounts() map[int64]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.cents)
}

// paid is the sum of the amounts. Called with mu held.
func (b *books) paid() (sum int64) {
	for _, c := range b.cents {
		sum += c
	}
	return sum
}

// settle records a win that a lookup found, of a claim that was counted as failed or never answered.
func (b *books) settle(c claim, has bought, wasFailed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wasFailed {
		b.failed--
	}
	b.enter(c.user, answer{line: c.line, outcome: replayed, ordinal: has.ordinal, cents: has.cents})
}

// winners returns the units won in this run by ordinal.
func (b *books) winners() []win {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := slices.Clone(b.wins)
	slices.SortFunc(w, func(x, y win) int { return cmp.Compare(x.ordinal, y.ordinal) })
	return w
}

// verdict is the result of the self-check.
type verdict struct {
	faults []string // what is wrong; none: the sale was right as far as it went
	notes  []string // what is worth saying and not wrong
	extra  int64    // faults not spelled out
	rule   string   // what was compared
}

// check compares the books with the promises. end is what the server says of the stock now, nil if it could not be
// asked, zero if the stock is gone. complete says that every line was answered; private, that no other process can
// have claimed from this stock.
func (b *books) check(end *sold, complete, private bool) verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := verdict{extra: b.nFaults - int64(len(b.faults)), faults: slices.Clone(b.faults)}
	say := func(format string, args ...any) { v.faults = append(v.faults, fmt.Sprintf(format, args...)) }
	won := int64(len(b.wins))
	free := b.start.limit - b.start.count // what this run could win
	if won > free {
		say("oversold: %s and %s", plural(won, "winner"), plural(free, "unit"))
	}
	if end != nil && b.open && end.epoch != b.start.epoch {
		if end.limit == 0 {
			say("the server no longer has the stock")
		} else {
			say("the stock was opened anew during the run (opening %d, now %d)", b.start.epoch, end.epoch)
		}
		end = nil
	}
	if end != nil && b.open {
		gone := end.count - b.start.count // units that left during the run, by the server's own count
		switch {
		case gone < won:
			say("the server sold %s and this run knows of %s", plural(gone, "unit"), plural(won, "winner"))
		case gone > won && !private:
			v.notes = append(v.notes,
				fmt.Sprintf("%s went to claims that this run did not make or saw no answer to", plural(gone-won, "unit")))
			free -= gone - won
		case gone > won && complete:
			say("the server sold %s and this run knows of only %s", plural(gone, "unit"), plural(won, "winner"))
		case gone > won:
			v.notes = append(v.notes, fmt.Sprintf("%s went to claims that were not answered", plural(gone-won, "unit")))
		}
	}
	if end != nil && b.open && end.count-b.start.count == won && end.cents-b.start.cents != b.paid() {
		say("the server has given out %s and the winners have %s", money(end.cents-b.start.cents), money(b.paid()))
	}
	if !complete {
		v.rule = "no ordinal twice, no user twice, no more winners than units"
		return v
	}
	wanted := int64(len(b.users)) - int64(len(b.earlier)) // users who had not won before; at least free if there are more
	if due := min(free, wanted); won != due {
		say("%s, and %s were due: %s free and %s without one", plural(won, "winner"), group(due), plural(free, "unit"),
			atLeast(wanted, free))
	}
	v.rule = fmt.Sprintf("no ordinal twice, no user twice, %s winners = min(%s, %s)", group(won), plural(free, "unit"),
		atLeast(wanted, free))
	return v
}

// atLeast names the number of users, which is only counted as far as it can matter.
func atLeast(users, free int64) string {
	if users >= free {
		return plural(users, "user") + " or more"
	}
	return plural(users, "user")
}

// totals is a copy of the counts.
type totals struct {
	read, winners, already, soldOut, malformed, failed int64
	earlier                                            int64
	cents                                              int64
	p50, p99                                           time.Duration
}

// answers is the number of claims that have one.
func (t totals) answers() int64 { return t.winners + t.already + t.soldOut }

func (b *books) totals() totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	return totals{
		read: b.read, winners: int64(len(b.wins)), already: b.already, soldOut: b.soldOut, malformed: b.malformed,
		failed:  b.failed,
		earlier: int64(len(b.earlier)), cents: b.paid(), p50: b.latency.percentile(50), p99: b.latency.percentile(99),
	}
}
