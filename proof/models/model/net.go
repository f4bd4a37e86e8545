package model

// Network plays the messages that are under way in a state S, in any order. A message that is zero is none.
type Network[S any, M comparable] struct {
	// Of returns the messages of a state, which Sort has sorted.
	Of func(s *S) []M
	// Left returns how many messages may still be lost and late. Late may be nil.
	Left func(s *S) (lost, late *uint8)
	// Arrive says what comes of a message that arrives in s; nil: it cannot now. Due reports that it has to before time
	// goes on.
	Arrive func(s *S, m M) (what string, f func(s *S))
	Due    func(m M) bool
	// Delay has a message rest for longer.
	Delay func(m *M)
	// Double makes a second one of the i-th message; nil: it is not doubled.
	Double func(s *S, m M) func(s *S, i int)
}

// Play calls do with what can happen to each message of s, and reports whether one has to arrive before time goes on.
func (n Network[S, M]) Play(s *S, do func(what string, m M, f func(s *S))) (due bool) {
	var none M
	net := n.Of(s)
	lost, late := n.Left(s)
	for i, m := range net {
		if m == none || i > 0 && m == net[i-1] {
			continue
		}
		take := func(what string, f func(s *S)) {
			do(what, m, func(s *S) {
				n.Of(s)[i] = none
				f(s)
			})
		}
		if what, f := n.Arrive(s, m); f != nil {
			take(what, f)
			due = due || n.Due(m)
		}
		if *lost > 0 {
			take("is lost", func(s *S) {
				lost, _ := n.Left(s)
				*lost--
			})
		}
		if late != nil && *late > 0 {
			do("is late", m, func(s *S) {
				_, late := n.Left(s)
				*late--
				n.Delay(&n.Of(s)[i])
			})
		}
		if n.Double != nil {
			if f := n.Double(s, m); f != nil {
				do("is doubled", m, func(s *S) { f(s, i) })
			}
		}
	}
	return due
}

// Put puts a message under way, and reports whether it had room.
func Put[M comparable](net []M, m M) bool {
	var none M
	for i := range net {
		if net[i] == none {
			net[i] = m
			return true
		}
	}
	return false
}

// Sort sorts messages, of which the order is not part of a state, so that fewer states differ. What is none comes last.
// number is another one for each other message.
func Sort[M comparable](net []M, number func(m M) uint64) {
	var none M
	for a := 1; a < len(net); a++ {
		for b := a; b > 0 && net[b] != none && (net[b-1] == none || number(net[b]) < number(net[b-1])); b-- {
			net[b], net[b-1] = net[b-1], net[b]
		}
	}
}

// Pack makes one number of small ones: less than 16 each, and 16 at most.
func Pack[N ~uint8 | ~uint16 | ~int32 | ~uint64](numbers ...N) (n uint64) {
	for _, x := range numbers {
		n = n<<4 | uint64(x)
	}
	return n
}

// Flags makes a number of yes and no.
func Flags(all ...bool) (n uint64) {
	for _, x := range all {
		n <<= 1
		if x {
			n |= 1
		}
	}
	return n
}
