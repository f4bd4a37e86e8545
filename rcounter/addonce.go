package rcounter

import (
	"context"
	"fmt"
	"strconv"
	"time"

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

// AddOnce is Add, once for each id: a call with an id that was added before adds nothing, and answers with the value that
// was reached then. replayed reports that it was another call, of this process or another, that did so. id is the
// caller's own, such as that of an order; the same id with another d is ErrMismatch. It may be repeated after any
// error, as long as ids are remembered (CounterOptions.Remember); this call repeats itself until it is answered. One round trip.
//
// What is refused, as by Add, is not remembered: the same id may be added later. Set and CompareAndSet, and a counter
// that ends and begins again, leave the ids as they are. They are kept in keys beside the counter's own, which stays
// a plain integer; they take about 60 bytes each, and the id. If those keys are lost (evicted, deleted, forgotten by a
// failover), or the server's clock is set forward by as much, ids are forgotten early. A request given up on may be served
// later: then AddOnce with that id tells.
//
// Errors: ErrInvalidName for the id, ErrMismatch, and those of Add.
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
		return 0, false, fmt.Errorf("%w: %.64q on %q adds %d", ErrMismatch, id, k.key, r.value)
	case r.code == addReplayed:
		return r.value, true, nil
	}
	v, err = k.added(d, r)
	return v, false, err
}
