package rlock

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

var (
	blockedScript     = load("record a blocked call", "blocked")
	lookBlockedScript = load("look for blocked calls", "look_blocked").Reads()
)

// blockedVersion is the version of the layout of a record. A later version adds to the end.
const blockedVersion = "1"

// blockedRecord is the record of a call that waits for a lock and holds others:
//
//	<version> <began> <stale> <id> <owner> <key> …
type blockedRecord struct {
	began int64         // server ms, by the estimate of its process; 0: not known
	stale time.Duration // the call counts as ended after this time without a request
	id    string        // of the wait
	holds []heldLock
}

// heldLock is a lock and the owner that holds it.
type heldLock struct{ key, owner string }

// text returns the record as the server has it; "" without holds.
func (r *blockedRecord) text() string {
	if len(r.holds) == 0 {
		return ""
	}
	fields := []string{blockedVersion, strconv.FormatInt(r.began, 10), script.Millis(r.stale), r.id}
	for _, held := range r.holds {
		fields = append(fields, held.owner, url.QueryEscape(held.key))
	}
	return strings.Join(fields, " ")
}

// readBlocked reads a record of this or a later version. ok is false for any other text.
func readBlocked(text string) (record blockedRecord, ok bool) {
	const fixed = 4
	fields := strings.Split(text, " ")
	if len(fields) < fixed+2 {
		return blockedRecord{}, false
	}
	began, err := strconv.ParseInt(fields[1], 10, 64)
	stale, staleErr := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || staleErr != nil {
		return blockedRecord{}, false
	}
	record = blockedRecord{began: began, stale: script.Duration(stale), id: fields[3]}
	for i := fixed; i+1 < len(fields); i += 2 {
		key, err := url.QueryUnescape(fields[i+1])
		if err != nil {
			return blockedRecord{}, false
		}
		record.holds = append(record.holds, heldLock{key, fields[i]})
	}
	return record, true
}

// isOlder reports whether the wait of r began before that of other, in an order that is the same for all processes.
func (r *blockedRecord) isOlder(other *blockedRecord) bool {
	return r.began < other.began || r.began == other.began && r.id < other.id
}

// circlePart is a lock of a circle and its owner. The record is of the call that waits for the lock and holds the lock
// of the next part in the search, which is the part before it in circle.parts.
type circlePart struct {
	heldLock
	from      *circlePart // the part from which the search came; nil: the caller itself holds the lock
	record    string      // of the call that waits for from's lock, and holds this one; "" without from
	newerThan int64       // after the end of the search: server ms; the record has to be written after it
}

// circle is a circle that one search has found: the lock for which the caller waits first, a lock that it holds last.
type circle struct {
	parts []*circlePart
}

// blockedLook is the result of look_blocked.lua.
type blockedLook struct {
	serverMs int64
	held     bool
	records  []rueidis.ZScore // record and server ms of its last request
}

func blockedKey(key string) string { return keyname.Prefix("redlatch_blocked", key) }

// runBlocked writes a record that a call waits for the lock, and removes another record; "": none.
func (l *single) runBlocked(ctx context.Context, record, removed string) (int64, error) {
	if record == "" && removed == "" {
		return 0, nil
	}
	reply, err := l.c.runner.Attempt(ctx, script.Call{Script: blockedScript, Keys: []string{blockedKey(l.key)},
		Args: []string{record, removed}})
	if err != nil {
		return 0, err
	}
	return reply.AsInt64()
}

// lookBlocked reads whether the owner holds its lock, and which calls wait for that lock.
func (l *single) lookBlocked(ctx context.Context, of heldLock) (look blockedLook, err error) {
	reply, err := l.c.runner.Attempt(ctx, script.Call{Script: lookBlockedScript,
		Keys: []string{of.key, blockedKey(of.key)}, Args: []string{of.owner}})
	if err != nil {
		return blockedLook{}, err
	}
	values, err := reply.ToArray()
	if err != nil || len(values) != 3 {
		return blockedLook{}, script.Unexpected("look", len(values), err)
	}
	look.serverMs, _ = values[0].AsInt64()
	held, _ := values[1].AsInt64()
	look.held = held == 1
	look.records, err = values[2].AsZScores()
	return look, err
}

// search looks for a circle of the caller's record and older ones: from the locks that the caller holds to those who
// wait for them, the shortest way first.
func (l *single) search(ctx context.Context, own blockedRecord) *circle {
	began := time.Now()
	var found []*circlePart
	seen := map[heldLock]bool{}
	for _, held := range own.holds {
		found = append(found, &circlePart{heldLock: held})
	}
	looks := map[*circlePart]blockedLook{}
	for i := 0; i < len(found) && len(looks) < maxLooks; i++ {
		part := found[i]
		if seen[part.heldLock] {
			continue
		}
		seen[part.heldLock] = true
		look, err := l.lookBlocked(ctx, part.heldLock)
		if err != nil || !look.held {
			continue
		}
		looks[part] = look
		if part.key == l.key {
			return newCircle(part, looks, time.Since(began))
		}
		for _, waiter := range look.records {
			record, ok := readBlocked(waiter.Member)
			if !ok || !record.isOlder(&own) || look.serverMs-int64(waiter.Score) > record.stale.Milliseconds() {
				continue
			}
			for _, held := range record.holds {
				found = append(found, &circlePart{heldLock: held, from: part, record: waiter.Member})
			}
		}
	}
	return nil
}

// newCircle returns the circle that ends with a part, after a search that took so long.
func newCircle(last *circlePart, looks map[*circlePart]blockedLook, took time.Duration) *circle {
	found := &circle{}
	for part := last; part != nil; part = part.from {
		if part.from != nil {
			part.newerThan = looks[part.from].serverMs + took.Milliseconds() + 1
		}
		found.parts = append(found.parts, part)
	}
	return found
}

type circleState uint8

const (
	circleBroken    circleState = iota
	circleOpen                  // all is as before, but a record was not written anew yet
	circleConfirmed             // see deadlock.go
)

// confirm looks at the circle again.
func (l *single) confirm(ctx context.Context, suspect *circle) circleState {
	state := circleConfirmed
	looks := map[heldLock]blockedLook{}
	for _, part := range suspect.parts {
		look, err := l.lookBlocked(ctx, part.heldLock)
		if err != nil || !look.held {
			return circleBroken
		}
		looks[part.heldLock] = look
	}
	for _, part := range suspect.parts {
		if part.from == nil {
			continue
		}
		at, waits := int64(0), false
		for _, waiter := range looks[part.from.heldLock].records {
			if waiter.Member == part.record {
				at, waits = int64(waiter.Score), true
			}
		}
		switch {
		case !waits:
			return circleBroken
		case at <= part.newerThan:
			state = circleOpen
		}
	}
	return state
}
