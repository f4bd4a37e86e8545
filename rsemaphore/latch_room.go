package rsemaphore

import (
	"sync"
	"time"
)

// room is where the waiters of one process for one event are, a latch that opens or a barrier's generation that ends.
// One of them asks the server, as the wait loop has it, and what it hears the others need not ask for: an answer to a
// request that was sent after a waiter came is an answer for that waiter too. So an event costs a process one request
// however many wait; and what follows the event, a latch that is set again at once, cannot hide it from those behind.
type room struct {
	key     roomKey
	members int
	sent    time.Time // of the request that told of the event; zero: none has
	told    any
	asked   time.Time // of the last request by which the event was yet to come
	note    any       // what that said
}

type roomKey struct {
	client *Client
	line   string
}

// rooms are those with anybody in them.
var rooms = struct {
	sync.Mutex
	all map[roomKey]*room
}{all: map[roomKey]*room{}}

func (c *Client) enterRoom(line string) *room {
	rooms.Lock()
	defer rooms.Unlock()
	k := roomKey{c, line}
	r := rooms.all[k]
	if r == nil {
		r = &room{key: k}
		rooms.all[k] = r
	}
	r.members++
	return r
}

// others reports whether anybody else is there.
func (r *room) others() bool {
	rooms.Lock()
	defer rooms.Unlock()
	return r.members > 1
}

func (r *room) leave() {
	rooms.Lock()
	defer rooms.Unlock()
	if r.members--; r.members == 0 {
		delete(rooms.all, r.key)
	}
}

// remember keeps what the server replied to a request sent at sent, for whoever asks next: it may know of the event by
// the difference.
func (r *room) remember(sent time.Time, note any) {
	rooms.Lock()
	defer rooms.Unlock()
	r.asked, r.note = sent, note
}

// recall is what was remembered of a request that was sent no earlier than since, and when that was.
func (r *room) recall(since time.Time) (note any, asked time.Time) {
	rooms.Lock()
	defer rooms.Unlock()
	if r.asked.IsZero() || r.asked.Before(since) {
		return nil, time.Time{}
	}
	return r.note, r.asked
}

// tell passes on what the server replied to a request sent at sent. What is only known to have been over since an earlier
// request, and may have begun anew, is told as of that one: it is nothing to those who came in between.
func (r *room) tell(sent time.Time, event any) {
	rooms.Lock()
	defer rooms.Unlock()
	r.sent, r.told = sent, event
}

// heard is what was told of a request that was sent no earlier than since.
func (r *room) heard(since time.Time) (event any, ok bool) {
	rooms.Lock()
	defer rooms.Unlock()
	if r.sent.IsZero() || r.sent.Before(since) {
		return nil, false
	}
	return r.told, true
}
