// Package quorummodel is the protocol by which a Quorum of Fenced locks gives tokens (rlock/token.go), as a small state
// machine, and a search of all its states: three servers, holders that come one after another or at the same time,
// servers that are restarted without their data, requests that run late, and holders that are slow.
//
// What must hold: of two holders that got their tokens, the one that got it later has the greater token. What the
// search assumes is what the protocol does: a server votes again only when each hold is over that it may have
// forgotten, a vote ends on the server only after its holder has stopped trusting it, and one server that kept the last
// token remembers it.
//
// Each [Rule] is one thing that the protocol does for this, and can be left out; then the search finds two tokens in
// the wrong order.
package quorummodel

import (
	"strconv"
	"strings"
)

// Rule is one thing that the protocol does.
type Rule int

// The rules, and what holds without each.
const (
	Whole         Rule = iota // Whole: nothing is left out
	AsksMajority              // the token is more than the last one of a majority; without it, of one server that voted
	CountsItself              // tokens are counted; without it, they are the clock of a server, and clocks differ
	DoubtsRestart             // a record of an earlier run of its server does not count
	// a server keeps no token of a holder whose vote is over, and none that is less than its last
	KeepsLater
	MajorityKeeps // a majority keeps the token before it is used; without it, one server does
	AsksAll       // if no majority is sure, all are asked; without it, those that voted
	Rules         // Rules is how many there are.
)

func (r Rule) String() string {
	return [Rules]string{"whole", "asks a majority", "counts", "doubts a restarted server", "keeps later ones",
		"a majority keeps", "asks all if unsure"}[r]
}

const (
	servers  = 3
	majority = 2
	clients  = 3 // at most
	none     = -1
)

// server is one member.
type server struct {
	vote int8 // the client that it voted for
	Record[int8]
	young uint8 // clients whose votes it may have forgotten, and that may still trust them
}

type phase uint8

const (
	voting  phase = iota // collects votes
	keeping              // has a token, which members are to keep
	got                  // has its token
	over
)

// client is one acquisition.
type client struct {
	phase phase
	late  bool  // its votes are trusted no more: it gets nothing, and the servers may end them
	votes uint8 // servers that voted for it
	asked uint8 // servers of which it knows the last token
	sure  uint8 // those among them whose record counts
	last  int8  // the greatest token it knows of
	one   int8  // the token of the server that voted first, and one more than its number
	first int8  // that server
	token int8  // that it has chosen
	kept  uint8 // by which servers
}

// state is all there is. It is a key of the states that were seen.
type state struct {
	s        [servers]server
	c        [clients]client
	greatest int8 // that a client has got
	restarts int8 // that may still come
	wrong    bool // a token is not greater than one before
}

func begin(clients, restarts int) state {
	st := state{restarts: int8(restarts)}
	for c := clients; c < len(st.c); c++ {
		st.c[c].phase = over
	}
	for i := range st.s {
		st.s[i].vote = none
		st.s[i].Record = Record[int8]{Token: 1, By: none, Sure: true} // an earlier hold's, which all have kept
	}
	st.greatest = 1
	return st
}

// event is a state that can follow, and what has happened.
type event struct {
	what string
	nums [3]int // of it
	next state
}

func (e event) String() string {
	text := e.what
	for _, n := range e.nums {
		text = strings.Replace(text, "%d", strconv.Itoa(n), 1)
	}
	return text
}

// plain is the state without what matters no more: what a client knew that has its token or is over. A client begins
// only when those with lower numbers have, since their numbers mean nothing.
func (st state) plain(without Rule) state {
	for c := range st.c {
		x := &st.c[c]
		voted := false
		for _, s := range st.s {
			voted = voted || s.vote == int8(c)
		}
		switch {
		case x.phase == got:
			*x = client{phase: got, late: x.late, votes: x.votes}
			fallthrough
		default:
			if !x.late || voted || x.phase == keeping && without == KeepsLater {
				continue
			}
		}
		*x = client{phase: over}
		for i := range st.s {
			if st.s[i].By == int8(c) {
				st.s[i].By = none
			}
		}
	}
	return st
}

// has reports whether a client has begun.
func (x client) has() bool { return x.phase != voting || x.votes != 0 || x.late }

func bit(i int) uint8 { return 1 << i }

func count(mask uint8) (n int) {
	for ; mask != 0; mask &= mask - 1 {
		n++
	}
	return n
}

// after returns what can happen next, without one rule.
func (st state) after(without Rule) (all []event) {
	add := func(next state, what string, a, b, c int) *event {
		all = append(all, event{what: what, nums: [3]int{a, b, c}, next: next})
		return &all[len(all)-1]
	}
	for i := range st.s {
		if n := st; st.restarts > 0 && st.remembered(i, st.greatest) {
			s := &n.s[i]
			n.restarts--
			for c := range n.c {
				if n.c[c].votes&bit(i) != 0 && !n.c[c].late && n.c[c].phase != over {
					s.young |= bit(c)
				}
			}
			*s = server{vote: none, Record: Record[int8]{By: none}, young: s.young}
			add(n, "server %d is restarted, and empty", i, 0, 0)
		}
	}
	for c := range st.c {
		x := st.c[c]
		switch x.phase {
		case voting:
			for i := range st.s {
				st.voteFor(c, i, without, add)
				if x.asked&bit(i) == 0 && count(x.votes) >= majority {
					n := st
					n.c[c].asked |= bit(i)
					n.c[c].last = max(x.last, st.s[i].Token)
					add(n, "client %d asks server %d, which has %d", c, i, int(st.s[i].Token))
				}
			}
			if token, ok := x.choose(without); ok && !x.late {
				n := st
				n.c[c].phase, n.c[c].token, n.c[c].kept = keeping, token, 0
				add(n, "client %d chooses token %d", c, int(token), 0)
			}
		case keeping:
			for i := range st.s {
				st.keep(c, i, without, add)
			}
			need := majority
			if without == MajorityKeeps {
				need = 1
			}
			if count(x.kept) >= need && !x.late && st.remembered(none, x.token) {
				n := st
				n.c[c].phase = got
				e := add(n, "client %d has token %d", c, int(x.token), 0)
				e.next.wrong = x.token <= st.greatest
				e.next.greatest = max(st.greatest, x.token)
			}
		}
		st.end(c, add)
	}
	return all
}

// remembered reports whether a server but i has a token, or a later one.
func (st state) remembered(i int, token int8) bool {
	for j, s := range st.s {
		if j != i && s.Token >= token {
			return true
		}
	}
	return false
}

// voteFor has a server vote, if it is free and old enough.
func (st state) voteFor(c, i int, without Rule, add func(state, string, int, int, int) *event) {
	s, x := st.s[i], st.c[c]
	if !votes(s.vote, s.young != 0) || x.late || x.votes&bit(i) != 0 || c > 0 && !st.c[c-1].has() {
		return
	}
	n := st
	n.s[i].vote = int8(c)
	y := &n.c[c]
	if y.votes == 0 {
		y.one, y.first = s.Token, int8(i)
	}
	y.votes |= bit(i)
	y.asked |= bit(i)
	y.last = max(y.last, s.Token)
	if s.Counts(without) {
		y.sure |= bit(i)
	}
	add(n, "server %d votes for client %d, and has token %d", i, c, int(s.Token))
}

// choose is the token that a client may choose by what it knows.
func (x client) choose(without Rule) (token int8, ok bool) {
	switch {
	case count(x.votes) < majority:
		return 0, false
	case without == AsksMajority:
		return x.one + 1, true
	case without == CountsItself:
		return x.one + 1 + 2*(servers-x.first), true // no token is below the last one there, and the clocks differ
	case count(x.sure) >= majority, without == AsksAll, count(x.asked) == servers:
		return x.last + 1, true
	}
	return 0, false
}

// keep has a server run the request to keep a token. That may be late, and a copy.
func (st state) keep(c, i int, without Rule, add func(state, string, int, int, int) *event) {
	s, x := st.s[i], st.c[c]
	if x.votes&bit(i) == 0 || x.kept&bit(i) != 0 {
		return
	}
	n := st
	record, answer := s.Keep(s.vote, int8(c), x.token, without)
	switch answer {
	case Later:
		if x.late {
			return
		}
		n.c[c].token, n.c[c].kept = s.Token+1, 0
		add(n, "server %d has token %d, and client %d chooses a greater one", i, int(s.Token), c)
	case Kept:
		n.s[i].Record = record
		n.c[c].kept |= bit(i)
		add(n, "server %d keeps token %d of client %d", i, int(x.token), c)
	}
}

// end has a client stop to trust its votes, and the servers end them.
func (st state) end(c int, add func(state, string, int, int, int) *event) {
	x := st.c[c]
	if x.phase == over || !x.has() {
		return
	}
	if !x.late {
		n := st
		n.c[c].late = true
		for i := range n.s {
			n.s[i].young &^= bit(c)
		}
		add(n, "client %d trusts its votes no more", c, 0, 0)
		return
	}
	for i, s := range st.s {
		if s.vote == int8(c) {
			n := st
			n.s[i].vote = none
			add(n, "the vote of server %d for client %d ends", i, c, 0)
		}
	}
}
