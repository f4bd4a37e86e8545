package main

// The same uncontended locks with clients and server on one processor. There a rate is one over the processor time of a
// cycle on both sides. With a processor for each, and one caller, most of the time goes into waking an idle processor:
// the same program is up to four times as fast while the system has both run on one.

// onOne is what the run of its own says that was bound to one processor.
func (p *page) onOne() {
	s := p.s.onOne
	if s == nil {
		return
	}
	p.say("## On one processor")
	p.say("This is a separate run ([processor.csv](processor.csv)) in which clients and server share one processor: "+
		"`%s`. So the rate is the inverse of the processor time that a lock and unlock take on both sides together. "+
		"With one caller and a processor for each side, most of the time goes into waking an idle processor. The same "+
		"program is up to four times as fast while the system runs both on one processor, so the figures above say more "+
		"about that than about the libraries.", s.file.Fact("command"))
	q := &page{s: s}
	for _, k := range s.settings("uncontended") {
		q.alone(k, goroutines(k)+", one processor", s.sorted(k, rate, true), floor)
	}
	p.b.WriteString(q.b.String())
}

// onOneProcessor begins the names of goals that are judged by that run.
const onOneProcessor = "on one processor: "

// goalsOnOne are those of goalsAlone by the run on one processor.
func (p *page) goalsOnOne() (all []goal) {
	s := p.s.onOne
	if s == nil {
		return nil
	}
	for i, want := range rateGoals {
		k := setting{"uncontended", 1, aloneWith[i]}
		if len(s.in(k)) == 0 { // with many callers both processors have enough to do
			continue
		}
		all = append(all, s.overBest(k, want, onOneProcessor+"lock and unlock, "+goroutines(k)))
		all = append(all, s.plainGoals(k, onOneProcessor)...)
	}
	return all
}
