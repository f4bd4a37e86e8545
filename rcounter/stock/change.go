package stock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Change says what of a sale is to be otherwise. Fields that are not set change nothing.
type Change struct {
	// Items are new limits; a number that is 0 stays. A user that has more than PerUser keeps it.
	Items map[string]Item
	// StartIn and EndIn move the start and the end to so long from now, by the server's clock. The retention after the end
	// is as long as before. A sale that was over by its time sells again, unless EndSale ended it.
	StartIn, EndIn *time.Duration
	// Paused has new orders, and payments for lapsed ones, answered by ErrLater. Reserved orders can be paid. False ends a
	// pause. A sale that EndSale ended stays ended.
	Paused *bool
}

// changeArgs are the fields of a Change as change.lua has them.
var changeArgs = map[string]string{"Limit": "limit", "PerUser": "per", "StartIn": "start", "EndIn": "end"}

// args are what change.lua takes, if c can be done.
func (c Change) args() (args []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(c.Items)) {
		if err := checkItem(name); err != nil {
			return nil, err
		}
		item := c.Items[name]
		for what, n := range map[string]int64{"Limit": item.Limit, "PerUser": item.PerUser} {
			if n < 0 || n > maxUnits {
				return nil, errs.InvalidOption(fmt.Sprintf("Items[%.64q].%s", name, what), n,
					fmt.Sprintf("between 1 and %d, or 0 to leave it", int64(maxUnits)))
			}
			if n > 0 {
				args = append(args, changeArgs[what], name, decimal(n))
			}
		}
	}
	for what, in := range map[string]*time.Duration{"StartIn": c.StartIn, "EndIn": c.EndIn} {
		if in == nil {
			continue
		}
		if *in < 0 || *in > maxLifetime {
			return nil, errs.InvalidOption(what, *in, fmt.Sprintf("between 0 and %v", maxLifetime))
		}
		args = append(args, changeArgs[what], "", script.Millis(*in))
	}
	if c.Paused != nil {
		args = append(args, "paused", "", flag(*c.Paused))
	}
	if args == nil {
		return nil, errs.InvalidOption("change", "empty", "one that changes something")
	}
	return args, nil
}

// Change changes what Open has set, all of it in one step or nothing. Open still compares with the first Spec.
//
// Errors: ErrOutOfRange for a limit below what is sold and reserved; ErrInvalidName for an item that the sale does not
// have; ErrLater while Restore runs; ErrNoStock. After ErrUnknownOutcome all may be changed or nothing: Inspect tells.
// A copy that the network delivers late changes nothing.
func (s *Sale) Change(ctx context.Context, c Change) (err error) {
	defer edge(&err)
	args, refused := c.args()
	if err := s.c.calls.Usable(s.refused, refused); err != nil {
		return err
	}
	left, err := s.change(ctx, args)
	if err == nil && c.EndIn != nil {
		s.removeAfter(left)
	}
	return err
}

// EndSale ends the sale for good. Reserved orders can still be paid, all answers stay, and units can be returned, until
// the retention that Open has set is over. Errors: as for Change.
func (s *Sale) EndSale(ctx context.Context) (err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return err
	}
	_, err = s.change(ctx, []string{"ended", "", "1"})
	return err
}

var (
	changeScript = script.Load("change", files, "change")
	deleteScript = script.Load("delete", files, "delete")
)

// change runs change.lua: first to ask for the revision, and again as long as other calls are quicker. The result is
// the time until the sale is removed.
func (s *Sale) change(ctx context.Context, what []string) (time.Duration, error) {
	id, until := session.CallID(), "0"
	for revision := ""; ; {
		r, err := s.ask(ctx, changeScript, append([]string{id, revision, until}, what...)...)
		if err != nil {
			return 0, err
		}
		if len(r.rest) != 2 {
			return 0, malformed("change", s.keys[0])
		}
		now, err1 := r.rest[0].AsInt64()
		left, err2 := r.rest[1].AsInt64()
		if err1 != nil || err2 != nil {
			return 0, malformed("change", s.keys[0])
		}
		if r.head[2] == 1 {
			s.processState().cache.forget()
			return script.Duration(left), nil
		}
		revision, until = decimal(r.head[1]), script.NotAfter(now, s.c.calls.Wanted(ctx))
	}
}

// Delete removes the sale with all that it knows, whatever its state, or what is left of one that was lost. The name
// can be opened again at once. A name without a sale is not an error. A copy that the network delivers late removes no
// other opening.
func (s *Sale) Delete(ctx context.Context) (err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return err
	}
	for epoch := ""; ; {
		r, answered, err := s.run(ctx, script.Call{Script: deleteScript, Keys: s.keys, Args: []string{epoch}})
		switch {
		case !answered:
			return err
		case r.head[0] == codeNone || r.head[0] == codeOK && r.head[2] == 1:
			s.processState().cache.forget()
			return nil
		case r.head[0] != codeOK:
			return s.verdict(r.head)
		case len(r.rest) != 1:
			return malformed("delete", s.keys[0])
		}
		if epoch, err = r.rest[0].ToString(); err != nil {
			return malformed("delete", s.keys[0])
		}
	}
}
