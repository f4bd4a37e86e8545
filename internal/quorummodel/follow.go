package quorummodel

import (
	"fmt"
	"time"
)

// slack is what an instant in whole milliseconds may be off.
const slack = 2 * time.Millisecond

// member is a server, as it was followed.
type member struct {
	record Record[int64]
	ran    int64         // the run that kept it
	run    int64         // the present one; 0: not known yet
	vote   int64         // an owner's number, or none
	until  time.Duration // the vote's end, by the server's clock
	began  time.Duration // of the present run; less than 0: long ago
}

// Follower follows what is seen of the servers of one Quorum. Instants are durations since any moment.
type Follower struct {
	members map[string]*member
	owners  map[string]int64
	heard   map[string]map[int64]bool // tokens of which a process may have heard
	Votes   int
	Keeps   int // tokens that a server has kept
	Sure    int // votes whose records count
}

// NewFollower makes one of servers that have kept nothing.
func NewFollower() *Follower {
	return &Follower{members: map[string]*member{}, owners: map[string]int64{}, heard: map[string]map[int64]bool{}}
}

func (f *Follower) member(name string) *member {
	m := f.members[name]
	if m == nil {
		m = &member{record: Record[int64]{By: none}, vote: none, began: -1}
		f.members[name] = m
	}
	return m
}

func (f *Follower) owner(name string) int64 {
	if _, ok := f.owners[name]; !ok {
		f.owners[name] = int64(len(f.owners)) + 1
	}
	return f.owners[name]
}

func (f *Follower) tells(process string, token int64) {
	if f.heard[process] == nil {
		f.heard[process] = map[int64]bool{}
	}
	f.heard[process][max(token, -token)] = true
}

// Restarted takes in that a server begins another run.
func (f *Follower) Restarted(at time.Duration, server string, empty bool) {
	m := f.member(server)
	m.run, m.began = 0, at
	if empty {
		m.record, m.ran, m.vote = Record[int64]{By: none}, 0, none
	}
}

// Voted takes in that a server votes for an owner for that long, and says which token was the last: minus, if it does
// not count. age is how long it must have run, clock its clock in µs.
func (f *Follower) Voted(at, now, lease, age time.Duration, server, process, owner string,
	last, run, clock int64) error {
	m, o := f.member(server), f.owner(owner)
	m.record.Sure = m.record.Token != 0 && m.ran == run
	refuse := func(why string) error {
		return fmt.Errorf("the model refuses that %s votes for %s at %v and says %d: %s: %+v", server, owner, at, last,
			why, *m)
	}
	vote := m.vote
	if vote == o || m.until <= now+slack {
		vote = none
	}
	most := max(clock, m.record.Token)
	switch token := max(last, -last); {
	case !votes(vote, m.began >= 0 && at < m.began+age):
		return refuse("it may not vote")
	case m.run != 0 && m.run != run:
		return refuse("it is another run")
	case last > 0 != m.record.Counts(Whole):
		return refuse("whether its record counts")
	case token < m.record.Token || token > most+slack.Microseconds():
		return refuse("that is not the last token")
	}
	if m.vote != o {
		m.until = 0
	}
	m.vote, m.until, m.run = o, max(now+lease, m.until), run
	f.Votes++
	if last > 0 {
		f.Sure++
	}
	f.tells(process, last)
	return nil
}

// Renewed takes in that a server has made the vote of an owner last.
func (f *Follower) Renewed(now, lease time.Duration, server, owner string) {
	if m := f.member(server); m.vote == f.owner(owner) {
		m.until = max(m.until, now+lease)
	}
}

// Released takes in that a server has ended the vote of an owner.
func (f *Follower) Released(server, owner string) {
	if m := f.member(server); m.vote == f.owner(owner) {
		m.vote = none
	}
}

// Asked takes in that a server sends a process its last token.
func (f *Follower) Asked(at time.Duration, server, process string, last int64) error {
	if m := f.member(server); last < m.record.Token {
		return fmt.Errorf("the model refuses that %s says %d at %v: %+v", server, last, at, *m)
	}
	f.tells(process, last)
	return nil
}

// Answered takes in what a server has answered an owner that has it keep a token; run is the one that gave the vote,
// and last the token that it says.
func (f *Follower) Answered(
	at, now time.Duration, server, process, owner string, token, run int64, said Answer, last int64,
) error {
	m, o := f.member(server), f.owner(owner)
	vote := m.vote
	if vote == o && said == Over && m.until <= now+slack {
		vote = none // its end, to the millisecond
	}
	record, answer := m.record.Keep(vote, o, token, Whole)
	switch {
	case !f.heard[process][token-1]:
		return fmt.Errorf("the model refuses that %s chooses %d at %v: it has not read the one before", process, token, at)
	case answer != said, said == Kept && m.until+slack < now, said == Later && last != m.record.Token:
		return fmt.Errorf("the model refuses that %s answers %d, %d to token %d of %s at %v, and not %d: %+v", server, said,
			last, token, owner, at, answer, *m)
	}
	if said == Kept {
		m.record, m.ran = record, run
		f.Keeps++
	}
	if said == Later {
		f.tells(process, last)
	}
	return nil
}
