package salesearch

import (
	"time"

	"github.com/redlatch/redlatch/internal/oracle/salemodel"
	"github.com/redlatch/redlatch/rcounter/stock"
)

const (
	entries  = 6
	remember = 1
)

// opened is a sale of 2 units.
var opened = salemodel.Item{Limit: 2, PerUser: 2}

var ids = [...]string{"a", "b"}

// acts are the requests about each order: a is reserved, b bought. The first makes the order.
var acts = [len(ids)][]salemodel.Act{
	{{Verb: "reserve", Lines: two}, {Verb: "pay"}, {Verb: "cancel"}},
	{{Verb: "buy", Lines: two, UpTo: true}, {Verb: "return", Lines: one}, {Verb: "return"}},
}

var one, two = []salemodel.Line{{Asked: 1}}, []salemodel.Line{{Asked: 2}}

// order is a record; the zero order is none. is is salemodel.Order.State.
type order struct {
	is         byte
	n, ordinal int8
}

func (o order) String() string { return string(max(o.is, '-')) }

func (o order) hasUnits() bool { return o.is == 'R' || o.is == 'S' }

func (o order) isClosed() bool { return o.is != 0 && o.is != 'L' && !o.hasUnits() }

// entry is one of the ledger: an order became another.
type entry struct {
	serial, epoch, id int8
	was, is           byte
	n, ordinal        int8
}

// told are entries as stock has them.
var told = map[[2]byte]stock.Entry{{0, 'R'}: {Kind: "reserved"}, {0, 'S'}: {Kind: "sold"}, {'R', 'S'}: {Kind: "paid"},
	{'R', 'L'}: {Kind: "lapsed"}, {'R', 'C'}: {Kind: "cancelled"}, {'L', 'S'}: {Kind: "late"},
	{'S', 'S'}: {Kind: "returned"}, {'S', 'G'}: {Kind: "returned"}, {'L', 'C'}: {Kind: "void", Why: stock.Cancelled},
	{'L', 'E'}: {Kind: "void", Why: stock.Expired}, {0, 'F'}: {Kind: "void", Why: stock.Forbidden}}

// server is what a server has of the sale. The log has the entries that were removed, too.
type server struct {
	item          salemodel.Item
	orders        [len(ids)]order
	log           [entries]entry
	serial, moved int8
	epoch, round  int8
	suspended     bool
	put           int8 // 1 + the last serial of the records that Restore has put; 0: it has put none
}

// sale is the server's sale at the time 0.
func (s *server) sale() *salemodel.Sale {
	item := s.item
	m := &salemodel.Sale{End: 1, Remember: remember, Items: map[string]*salemodel.Item{"": &item},
		Orders: map[string]*salemodel.Order{}}
	for i, o := range s.orders {
		if o.is != 0 {
			m.Orders[ids[i]] = &salemodel.Order{State: o.is, Lines: []salemodel.Line{{Asked: 2, N: int64(o.n),
				Ordinal: int64(o.ordinal)}}}
		}
	}
	return m
}

// record is an order of m as the server keeps it here.
func record(m *salemodel.Sale, id int8) (o order) {
	if is := m.Orders[ids[id]]; is != nil {
		if o.is = is.State; !o.isClosed() {
			o.n, o.ordinal = int8(is.Lines[0].N), int8(is.Lines[0].Ordinal)
		}
	}
	return o
}

// change writes what has become of an order in m, and its entry.
func (s *server) change(m *salemodel.Sale, id int8, without Rule) (full bool) {
	was, is := s.orders[id], record(m, id)
	s.orders[id], s.item = is, *m.Items[""]
	switch {
	case is == was || is.is == 0 || is.is == 'L' && without == Enters:
		return false
	case int(s.serial) == len(s.log):
		return true
	}
	e := entry{s.serial + 1, s.epoch, id, was.is, is.is, is.n, is.ordinal}
	if was.is == 'S' {
		e.n, e.ordinal = was.n-is.n, was.ordinal+is.n
	} else if was.is == 'R' && is.is != 'S' {
		e.n = was.n
	}
	s.log[s.serial] = e
	s.serial++
	return false
}

// fold is what entries make of a sale; nil: they cannot be entries of one.
func fold(list []entry) *salemodel.Sale {
	all := make([]stock.Entry, len(list))
	for i, e := range list {
		all[i] = told[[2]byte{e.was, e.is}]
		all[i].Serial, all[i].ID, all[i].Asked, all[i].At = int64(e.serial), ids[e.id], 2, time.UnixMilli(1)
		all[i].N, all[i].Ordinal = int64(e.n), int64(e.ordinal)
	}
	item := opened
	m, err := salemodel.Fold(all, map[string]*salemodel.Item{"": &item})
	if err != nil {
		return nil
	}
	return m
}

// isFold reports whether the records and numbers are what the ledger makes of a sale, but for what was forgotten.
func (s *server) isFold() bool {
	m := fold(s.log[:s.serial])
	if m == nil || m.Items[""].Sold != s.item.Sold || m.Items[""].Reserved != s.item.Reserved {
		return false
	}
	for i, o := range s.orders {
		if is := record(m, int8(i)); is != o && (o.is != 0 || is.hasUnits()) {
			return false
		}
	}
	return true
}

// do does an act as the model does it, without one rule.
func do(m *salemodel.Sale, a salemodel.Act, without Rule) {
	o, item := m.Orders[a.ID], m.Items[""]
	isNew := a.Verb == "buy" || a.Verb == "reserve"
	switch {
	case without == RecordFirst && isNew:
		delete(m.Orders, a.ID)
	case without == Final && o != nil && o.State == 'E' && a.Verb == "pay":
		o.State, o.Lines[0].N = 'L', 2
	case without == Forbids && o == nil && !isNew:
		return
	case without == SeqGrows:
		item.Seq = item.Sold
	}
	m.Do(a)
}
