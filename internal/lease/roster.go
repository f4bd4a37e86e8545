package lease

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// NewConnectionID is the first half of every owner of a client: a UUID of version 8 (RFC 9562), as text and as it is.
// Redisson's are of version 4, so a script can tell which holders are ours. 12 bits say for how long the client is
// trusted without a heartbeat (see Heartbeats; 0: it has none), the other 110 are random.
func NewConnectionID(trust time.Duration) (text string, id [16]byte) {
	rand.Read(id[:]) // never fails
	units := uint16(trust / trustUnit)
	id[6], id[7] = 0x80|byte(units>>8), byte(units)
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), id
}

const (
	trustUnit = 10 * time.Millisecond
	// MaxTrust is the longest trust that a connection id can say.
	MaxTrust = 0xfff * trustUnit
)

// ours is the whole shape of an owner. Less would not do: other programs have locks of their own on some keys, whose
// holders are any text, and who is ours may be taken from when its heartbeat is not found.
var ours = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:[0-9]+(:[^!{}]*)?$`)

// Ours reports whether owner is one of this library, "<connectionID>:<n>", with a label or without.
func Ours(owner string) bool { return ours.MatchString(owner) }

// TrustIn is for how long the connection id of an owner says that it is trusted without a heartbeat: 0 if it has none, or
// is not ours.
func TrustIn(owner string) time.Duration {
	if !Ours(owner) {
		return 0
	}
	units, _ := strconv.ParseUint(owner[15:18], 16, 16)
	return time.Duration(units) * trustUnit
}

// Roster counts what a client's Close waits for: acquisitions under way, and what is held and neither released nor
// lost. The zero value is open and empty.
type Roster struct {
	// Hub, if set, is the context of the hub that the client works on: nobody gets in after its end. Set before use.
	Hub context.Context

	mu      sync.Mutex
	closed  bool
	held    int
	drained chan struct{} // made by Close, closed when held reaches 0
}

// Enter counts one in, or returns errs.ErrClosed; Leave counts it out.
func (r *Roster) Enter() error {
	if !r.IfOpen(func() { r.held++ }) {
		return errs.ErrClosed
	}
	return nil
}

// Leave counts one out.
func (r *Roster) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held--; r.held == 0 && r.drained != nil {
		close(r.drained)
		r.drained = nil
	}
}

// IfOpen runs f, which must not block, and reports true, unless Close has begun, which does not begin meanwhile, or the
// hub is closed.
func (r *Roster) IfOpen(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.Hub != nil && r.Hub.Err() != nil {
		return false
	}
	f()
	return true
}

// Closed reports whether Close has begun, or the hub is closed.
func (r *Roster) Closed() bool { return !r.IfOpen(func() {}) }

// Close lets nobody in any more, and returns a channel that is closed when all have left. first: nobody had closed it.
func (r *Roster) Close() (drained <-chan struct{}, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false
	}
	r.closed = true
	c := make(chan struct{})
	if r.held == 0 {
		close(c)
	} else {
		r.drained = c
	}
	return c, true
}

// CloseTime is for how long a Close waits whose ctx has no end. A hold that was never released, as after a return before its
// Unlock, would otherwise keep a deferred Close(context.Background()) waiting for ever.
const CloseTime = 10 * time.Second

// Bounded is the ctx of a Close.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() != nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, CloseTime)
}

// Leftovers is the error of a Close whose ctx ended first: what is left to its lease, nil if nothing is. owed are the names of
// releases that were not confirmed.
func Leftovers(ctx context.Context, names, owed []string) error {
	var problems []string
	if len(names) > 0 {
		problems = append(problems, fmt.Sprintf("%d still held, left to their leases: %s", len(names), shorten(names)))
	}
	if len(owed) > 0 {
		problems = append(problems, fmt.Sprintf("%d unconfirmed releases given up, left to their leases: %s", len(owed), shorten(owed)))
	}
	switch why := context.Cause(ctx); {
	case len(problems) == 0:
		return nil
	case why == nil:
		return fmt.Errorf("close: %s", strings.Join(problems, "; "))
	default:
		return fmt.Errorf("close: %s: %w", strings.Join(problems, "; "), why)
	}
}

// shorten keeps an error readable.
func shorten(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
