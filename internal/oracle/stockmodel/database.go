package stockmodel

import "slices"

// Row is an entry of a ledger in the database: of which opening, its number there, and whose it is.
type Row struct {
	Epoch, Serial, ID int64
	Entry
}

// Write is what a mover does with a batch in one transaction, in a database that has these rows, and knows one opening:
// it returns the rows that it adds, or false if it refuses the batch. Serials count from 0.
func Write(have, batch []Row, known int64, without Rule) (fresh []Row, ok bool) {
	next := int64(0)
	for _, r := range have {
		next = max(next, r.Serial+1)
	}
	for i, r := range batch {
		switch {
		case r.Epoch != known && without != Openings, r.Serial > next, r.Serial != batch[0].Serial+int64(i):
			return nil, false
		case r.Serial == next || without == Once:
			fresh = append(fresh, r)
			next = max(next, r.Serial+1)
		case without == Compares || without == Openings:
		case !slices.Contains(have, r) && !slices.Contains(fresh, r):
			return nil, false
		}
	}
	return fresh, true
}
