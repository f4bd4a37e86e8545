package quorummodel

// Record is the last token that a server has kept. The search has small numbers, a [Follower] those of the library.
type Record[N int8 | int64] struct {
	Token N    // 0: none
	By    N    // whose that is
	Sure  bool // it was kept by the present run
}

// Answer is what a server says when it is to keep a token.
type Answer int

// The answers.
const (
	Over  Answer = iota // Over: the server does not vote for that owner; nothing is done
	Kept                // Kept: the token is
	Later               // Later: it has one that is as late; nothing is done
)

// Keep is what a server does that is to keep a token of an owner, where vote is whom it votes for.
func (r Record[N]) Keep(vote, owner, token N, without Rule) (Record[N], Answer) {
	switch {
	case vote != owner && without != KeepsLater:
		return r, Over
	case (r.Token > token || r.Token == token && r.By != owner) && without != KeepsLater:
		return r, Later
	}
	return Record[N]{Token: token, By: owner, Sure: true}, Kept
}

// Counts reports whether the record of a server counts when it votes.
func (r Record[N]) Counts(without Rule) bool { return r.Sure || without == DoubtsRestart }

// votes reports whether a server may vote: it has no vote now, and has not forgotten a vote that may be trusted.
func votes[N int8 | int64](vote N, young bool) bool { return vote == none && !young }
