package quorummodel

// Found is what a search has come to.
type Found struct {
	States int      // that were looked at
	Wrong  []string // what happened until a token was not greater than one before; nil: that cannot happen
}

// Search looks at all states that so many clients (1 to 3) and restarts can reach without one rule, the nearest first,
// and ends at the first token that is not greater than one before.
func Search(without Rule, clients, restarts int) Found {
	type step struct {
		from int
		event
	}
	states, steps := []state{begin(clients, restarts)}, []step{{from: none}}
	seen := map[state]struct{}{states[0]: {}}
	for at := 0; at < len(states); at++ {
		for _, e := range states[at].after(without) {
			if e.bad {
				wrong := []string{e.String()}
				for i := at; i != 0; i = steps[i].from {
					wrong = append([]string{steps[i].String()}, wrong...)
				}
				return Found{States: len(states), Wrong: wrong}
			}
			next := e.next.plain(without)
			if _, ok := seen[next]; !ok {
				seen[next] = struct{}{}
				states, steps = append(states, next), append(steps, step{at, e})
			}
		}
	}
	return Found{States: len(states)}
}
