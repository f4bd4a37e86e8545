package quorummodel

import "github.com/redlatch/redlatch/internal/model"

// Search looks at all states that so many clients (1 to 3) and restarts can reach without one rule, the nearest first,
// and ends at the first token that is not greater than one before.
func Search(without Rule, clients, restarts int) model.Result {
	return model.Search(model.Machine[state, event]{
		Start: begin(clients, restarts),
		Follow: func(s *state, emit func(*state, event)) {
			for _, e := range s.after(without) {
				n := e.next.plain(without)
				emit(&n, e)
			}
		},
		Wrong: func(s *state) string {
			if s.wrong {
				return "a token is not greater than one before"
			}
			return ""
		},
	})
}
