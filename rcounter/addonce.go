package rcounter

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

const (
	// defaultRemember is the default of CounterOptions.Remember.
	defaultRemember = time.Hour
	// maxRemember is the longest time for which ids are remembered.
	maxRemember = 100 * 365 * 24 * time.Hour
)

// AddOnce adds d once for each id, which the caller chooses, such as that of an order: 1 to 1024 bytes. It can be
// called again after any error, ErrUnknownOutcome included, as long as ids are remembered (CounterOptions.Remember).
// One round trip, repeated until answered.
//
//   - v, false, nil: this call added d, and v is the new value.
//   - v, true, nil: another call with id and d, of this process or another one, had added it. This one added nothing; v
//     is the value that the other one reached, and not that of now.
//   - ErrMismatch: id was used to add another number. Nothing was added.
//   - ErrOutOfRange, with v where the counter stands, and ErrOverflow: as by Add, nothing was added.
//   - ErrUnknownOutcome: d may have been added or may still be added, once. Call again with the same id and d.
//
// A refused id, as by Add, is not remembered: it can be added later. Set, CompareAndSet and a counter
// that expires and starts again leave the ids as they are. The ids are in keys apart from the counter's own, which
// stays a plain integer; each takes about 60 bytes and its own length. If those keys are lost (evicted, deleted,
// forgotten by a failover), or the server's clock is set forward by as much, ids are forgotten early, and a call with
// one adds again. A request whose caller gave up may still run: AddOnce with that id then says so.
//
// An id that cannot be used is ErrInvalidName, and nothing is sent.
func (k *Counter) AddOnce(ctx context.Context, id string, d int64) (v int64, replayed bool, err error) {
	defer edge(&err)
	if err := k.c.calls.Usable(k.refused, keyname.Required("id", id)); err != nil {
		return 0, false, err
	}
	err = k.write(ctx, func() (err error) {
		v, replayed, err = k.addOnce(ctx, session.CallID(), id, d)
		return err
	})
	return v, replayed, err
}

var addOnceScript = script.Load("addonce", files, "addonce")

// What addonce.lua answers beyond add.lua's codes.
const (
	addReplayed = 3
	addMismatch = 4
)

// addOnce runs addonce.lua.
func (k *Counter) addOnce(ctx context.Context, call, id string, d int64) (v int64, replayed bool, err error) {
	r, err := k.c.adding(ctx, script.Call{Script: addOnceScript, Keys: k.idKeys(id),
		Args: append(k.addArgs(d), call, id, script.Millis(k.remember), strconv.Itoa(idPart(id)))})
	switch {
	case err != nil:
		return 0, false, err
	case r.code == addMismatch:
		return 0, false, fmt.Errorf("%w: %.64q on %q adds %d", errs.ErrMismatch, id, k.key, r.value)
	case r.code == addReplayed:
		return r.value, true, nil
	}
	v, err = k.added(d, r)
	return v, false, err
}
