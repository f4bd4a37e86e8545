package main

import (
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// event is one thing that the live page shows.
type event struct {
	Ms      int64     `json:"ms"` // since the doors opened
	Opening *opening  `json:"opening,omitempty"`
	Stock   *level    `json:"stock,omitempty"`
	Order   *receipt  `json:"order,omitempty"`
	Answers int64     `json:"answers,omitempty"` // so far, with an Order
	Fault   string    `json:"fault,omitempty"`
	Phase   string    `json:"phase,omitempty"`
	Check   []finding `json:"check,omitempty"`
}

// opening is the sale, as the page's heading says it.
type opening struct {
	Units     int64  `json:"units"`
	Customers int    `json:"customers"`
	Cents     int64  `json:"cents"`
	Seconds   int    `json:"seconds"`
	Workers   int    `json:"workers"`
	Movers    int    `json:"movers"`
	Server    string `json:"server"`
	Chaos     bool   `json:"chaos"`
}

// level is the stock at one moment.
type level struct {
	Left int64 `json:"left"`
	Held int64 `json:"held"`
	Sold int64 `json:"sold"`
}

// news sends what happens to every watcher. One that comes late gets all that came before, but of the orders only the
// last ones.
type news struct {
	mu       sync.Mutex
	begun    time.Time
	past     []past
	orders   int // of past
	watchers map[chan []byte]struct{}
}

// past is an event as it was sent.
type past struct {
	text  []byte
	order bool
}

const (
	keptOrders = 60
	slowest    = 4096 // events that a watcher may be behind; then it is dropped, and its browser comes again
)

func newNews() *news {
	return &news{begun: time.Now(), watchers: map[chan []byte]struct{}{}}
}

// open tells of the opening; times count from here.
func (n *news) open(o opening) {
	n.mu.Lock()
	n.begun = time.Now()
	n.mu.Unlock()
	n.tell(event{Opening: &o})
}

// tell passes e on.
func (n *news) tell(e event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e.Ms = time.Since(n.begun).Milliseconds()
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // of our own types
	}
	n.past = append(n.past, past{text, e.Order != nil})
	if e.Order != nil {
		if n.orders++; n.orders > keptOrders {
			oldest := slices.IndexFunc(n.past, func(p past) bool { return p.order })
			n.past = slices.Delete(n.past, oldest, oldest+1)
			n.orders--
		}
	}
	for w := range n.watchers {
		select {
		case w <- text:
		default:
			delete(n.watchers, w)
			close(w)
		}
	}
}

// watch returns what has happened and what will. The caller ends it.
func (n *news) watch() (before [][]byte, next <-chan []byte, end func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := make(chan []byte, slowest)
	n.watchers[w] = struct{}{}
	for _, p := range n.past {
		before = append(before, p.text)
	}
	return before, w, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.watchers, w)
	}
}
