package redlatchdebug

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

const (
	maxFrames   = 48   // of a call site
	maxSamples  = 4096 // pairs of a call site and a holder
	maxHolders  = 256  // names of holders
	maxLooks    = 16   // at the same time
	maxLooked   = 1024 // objects whose holders are remembered
	lookAgain   = time.Second / 10
	lookLasts   = time.Second
	namedAtOnce = 3 // holders of one object
	// The holder in samples for which none is known, and beyond maxHolders.
	noHolder, otherHolder = "unknown", "other"
)

// Contention returns the contention profile of a client, to be mounted at /debug/redlatch/contention and read by
//
//	go tool pprof http://127.0.0.1:6060/debug/redlatch/contention
//
// The profile has the acquisitions of locks, permits and leaderships that waited and have ended since Contention was
// called, with or without success. A sample is a call site: the stack of the caller outside of this module. Its values
// are the number of waits and the nanoseconds that redlatch_acquire_seconds counts for them. It has two labels:
//
//   - holder: by the name that Inspect shows, found by one look while the call waited, or up to a second before: the
//     label, the process, or the beginning of the owner. "unknown" if no look found one. Beyond 256 names, "other".
//   - kind: lock, election or semaphore
//
// With ?seconds=30 the profile has the waits that end within that time. At most 4096 pairs of a call site and a holder
// are kept apart; the rest is one sample. The waits of a Quorum, a latch and a barrier are not in the profile.
//
// An acquisition that does not wait costs nothing. From Contention on, one that waits costs the capture of its stack,
// and perhaps an Inspect in the background: at most ten in a second for an object, and 16 at a time. Contention panics
// if red is nil. Call it once for a client.
func Contention(red *redlatch.Client) http.Handler {
	if red == nil {
		panic("redlatchdebug: Contention of a nil client")
	}
	c := &contention{began: time.Now(), waits: map[callSite]waitSum{}, holders: map[string]bool{}, looks: map[seen]*look{}}
	for _, client := range clientsOf(red) {
		if inspect := inspectors[client.name]; inspect != nil {
			client.ObserveWaits(func(_ context.Context, event errs.Event) context.Context {
				if event.Kind == errs.EventWaiting {
					c.lookFor(client, red, event.Name)
				} else {
					c.add(client.name, event)
				}
				return nil
			})
		}
	}
	return c
}

// contention adds up the acquisitions that waited.
type contention struct {
	began time.Time

	mu      sync.Mutex
	waits   map[callSite]waitSum
	holders map[string]bool // the names in waits
	looks   map[seen]*look
	looking int
}

// callSite is what the waits of one sample have in common.
type callSite struct {
	stack        [maxFrames]uintptr
	kind, holder string
}

type waitSum struct {
	count int64
	time  time.Duration
}

// seen is an object of a client.
type seen struct{ client, name string }

// look is the last look for the holder of an object.
type look struct {
	at     time.Time // when it began
	holder string    // "": none
}

// kinds are the kinds of clients as metrics name them.
var kinds = map[string]string{"locks": "lock", "elections": "election", "semaphores": "semaphore"}

// add adds an acquisition that has waited. It runs on the goroutine of the caller.
func (c *contention) add(client string, event errs.Event) {
	site := callSite{kind: kinds[client]}
	captureCaller(&site.stack)
	c.mu.Lock()
	defer c.mu.Unlock()
	site.holder = noHolder
	if look := c.looks[seen{client, event.Name}]; look != nil && look.holder != "" &&
		time.Since(look.at) < event.Took+lookLasts {
		site.holder = look.holder
	}
	if !c.holders[site.holder] {
		if len(c.holders) >= maxHolders {
			site.holder = otherHolder
		}
		c.holders[site.holder] = true
	}
	if _, known := c.waits[site]; !known && len(c.waits) >= maxSamples {
		site = callSite{kind: site.kind, holder: otherHolder}
	}
	sum := c.waits[site]
	c.waits[site] = waitSum{sum.count + 1, sum.time + event.Took}
}

// captureCaller writes the stack of the caller of this module.
func captureCaller(stack *[maxFrames]uintptr) {
	var all [maxFrames + 16]uintptr
	found := all[:runtime.Callers(2, all[:])]
	for i := range found {
		// One pc may be several functions, the innermost first. The module has the pc if it has the outermost.
		frames, last := runtime.CallersFrames(found[i:i+1]), runtime.Frame{}
		for more := true; more; {
			last, more = frames.Next()
		}
		if !isOurs(last) {
			copy(stack[:], found[i:])
			return
		}
	}
	copy(stack[:], found) // a goroutine of the module, such as that of a candidate
}

const module = "github.com/redlatch/redlatch"

// isOurs reports whether a frame is of this module, and not of one of its tests.
func isOurs(frame runtime.Frame) bool {
	rest, ours := strings.CutPrefix(frame.Function, module)
	return ours && (rest[0] == '.' || rest[0] == '/') && !strings.HasSuffix(frame.File, "_test.go") ||
		strings.HasPrefix(frame.Function, "runtime.")
}

// inspectors return the names of who holds an object, by the kind of its client.
var inspectors = map[string]func(ctx context.Context, red *redlatch.Client, name string) []redlatch.Holder{
	"locks": func(ctx context.Context, red *redlatch.Client, name string) []redlatch.Holder {
		return lockHolders(ctx, red.Locks(), name)
	},
	"elections": func(ctx context.Context, red *redlatch.Client, name string) []redlatch.Holder {
		return lockHolders(ctx, accessor.Of[*rlock.Client](red.Elections()), name)
	},
	"semaphores": func(ctx context.Context, red *redlatch.Client, name string) []redlatch.Holder {
		return permitHolders(ctx, red.Semaphores(), name)
	},
}

func lockHolders(ctx context.Context, locks *rlock.Client, name string) []redlatch.Holder {
	state, _ := locks.Reentrant(name).Inspect(ctx) // of whatever kind the lock is
	return state.Holders
}

func permitHolders(ctx context.Context, semaphores *rsemaphore.Client, name string) []redlatch.Holder {
	state, err := semaphores.Semaphore(name, 1).Inspect(ctx)
	if err != nil || len(state.Permits) == 0 {
		state, _ = semaphores.WeightedSemaphore(name, 1).Inspect(ctx)
	}
	return state.Permits
}

// lookFor looks for the holder of an object in the background, unless a look was made lately.
func (c *contention) lookFor(client *client, red *redlatch.Client, name string) {
	object, now := seen{client.name, name}, time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.looks[object]
	if c.looking >= maxLooks || before != nil && now.Sub(before.at) < lookAgain {
		return
	}
	if before == nil && len(c.looks) >= maxLooked {
		for old, look := range c.looks {
			if now.Sub(look.at) > time.Minute {
				delete(c.looks, old)
			}
		}
		if len(c.looks) >= maxLooked {
			return
		}
	}
	found := &look{at: now}
	if before != nil {
		found.holder = before.holder
	}
	started := client.Background(func(ctx context.Context) {
		holder := holderNames(inspectors[client.name](ctx, red, name))
		c.mu.Lock()
		defer c.mu.Unlock()
		c.looking--
		if holder != "" {
			found.holder = holder
		}
	})
	if started {
		c.looks[object] = found
		c.looking++
	}
}

// holderNames returns the names of the first holders, as one text; "" without holders.
func holderNames(holders []redlatch.Holder) string {
	var names []string
	for _, h := range holders {
		if name := cmp.Or(h.Label, h.Process, short(h.ID)); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if more := len(names) - namedAtOnce; more > 0 {
		names = append(names[:namedAtOnce], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// snapshot returns the sums of now, without those of before.
func (c *contention) snapshot(before map[callSite]waitSum) map[callSite]waitSum {
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := make(map[callSite]waitSum, len(c.waits))
	for site, sum := range c.waits {
		if old := before[site]; sum.count > old.count {
			sums[site] = waitSum{sum.count - old.count, sum.time - old.time}
		}
	}
	return sums
}

// ServeHTTP implements http.Handler.
func (c *contention) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "only GET and HEAD: this profile is read-only")
		return
	}
	seconds, err := 0, r.ParseForm()
	if err != nil {
		err = fmt.Errorf("the query cannot be read: %w", err)
	} else {
		err = number(r, "seconds", 3600, &seconds)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Disposition", `attachment; filename="contention.pb.gz"`)
	if r.Method == http.MethodHead {
		return
	}
	began, before := c.began, map[callSite]waitSum(nil)
	if seconds > 0 {
		began, before = time.Now(), c.snapshot(nil)
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-r.Context().Done():
			return
		}
	}
	_ = writeProfile(w, c.snapshot(before), began) // fails if the reader has gone
}
