package election

// Member is a worker in a view, for tests of the plan.
type Member struct {
	ID      string
	Has     []bool
	Drained bool
}

// Plan is plan.
func Plan(n int, id string, view []Member) []bool {
	var members []member
	for _, m := range view {
		members = append(members, member{id: m.ID, has: m.Has, drained: m.Drained})
	}
	return plan(n, id, members)
}
