// Package inside is how packages of this module, and the debug page (package redlatchdebug), get at what the types of
// the public packages keep to themselves, and the errors that clients remember for that page.
//
// Each public package says in an init how its type is looked into. Otherwise the type would have exported methods of
// which users can make nothing, or the page would have to be part of the package that everybody links.
package inside

import (
	"reflect"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// look is a way to look into a type.
type look struct{ of, as reflect.Type }

var looks = map[look]func(any) any{}

// Reveal says how a C is looked into as an I. It is called by init functions only.
func Reveal[C, I any](into func(C) I) {
	looks[look{reflect.TypeFor[C](), reflect.TypeFor[I]()}] = func(c any) any { return into(c.(C)) }
}

// Of is c as an I, where the package of C has called Reveal for both.
func Of[I, C any](c C) I { return looks[look{reflect.TypeFor[C](), reflect.TypeFor[I]()}](c).(I) }

// Troubles are the last things that went wrong in one client, for people to look at. The zero value is empty, and takes
// no memory until something goes wrong. It is safe for concurrent use.
type Troubles struct {
	mu   sync.Mutex
	last []Trouble // newest last
}

// Trouble is one of them.
type Trouble struct {
	At    time.Time // of the last time
	What  string    // what failed: "acquire"
	Name  string    // of the object or channel
	Err   error
	Count int // how often this came, one after the other or between others
}

const (
	mostTroubles = 16
	mostAlike    = 8 // of one What and reason: when all holds of a client are lost at once, what led to it stays
)

// expected are the reasons of errors that a program reckons with: they tell nothing about the server or the client.
var expected = map[string]bool{
	"ok": true, "not_acquired": true, "canceled": true, "timeout": true, "closed": true, "released": true, "reentry": true,
	"latch_expired": true, "latch_deleted": true,
}

// Add notes that what failed with err, unless err is one that a program reckons with. It neither logs nor blocks.
func (t *Troubles) Add(what, name string, err error) {
	reason := errs.Reason(err)
	if expected[reason] {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	count, drop, alike := 1, -1, 0
	for i, old := range t.last {
		if old.What != what || errs.Reason(old.Err) != reason {
			continue
		}
		if old.Name == name {
			count, drop, alike = old.Count+1, i, 0
			break
		}
		if alike++; alike == 1 {
			drop = i
		}
	}
	if alike > 0 && alike < mostAlike { // none of them has to go
		drop = -1
	}
	if drop < 0 && len(t.last) == mostTroubles {
		drop = 0
	}
	if drop >= 0 {
		copy(t.last[drop:], t.last[drop+1:])
		t.last = t.last[:len(t.last)-1]
	}
	t.last = append(t.last, Trouble{At: time.Now(), What: what, Name: name, Err: err, Count: count})
}

// Last returns them, the newest first.
func (t *Troubles) Last() []Trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := make([]Trouble, 0, len(t.last))
	for i := len(t.last) - 1; i >= 0; i-- {
		last = append(last, t.last[i])
	}
	return last
}
