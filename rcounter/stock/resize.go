package stock

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// Resize gives the stock another limit, 1 to maxLimit, at any time until its retention is over. Less than what is sold
// and held is ErrOutOfRange, and no stock ErrNotOpen; nothing is changed then. Two round trips, repeated until
// answered; a copy that the network delivers late changes nothing.
//
// After ErrUnknownOutcome the limit may be the new one; Status tells.
func (s *Stock) Resize(ctx context.Context, limit int64) (err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.alone()); err != nil {
		return err
	}
	if limit < 1 || limit > maxLimit {
		return errs.InvalidOption("limit", limit, fmt.Sprintf("between 1 and %d", int64(maxLimit)))
	}
	id, revision := session.CallID(), ""
	for {
		r, err := s.resize(ctx, id, limit, revision)
		if err != nil || r.done {
			return err
		}
		revision = strconv.FormatInt(r.revision, 10) // somebody else was quicker: what was asked for is still wanted
	}
}

var resizeScript = script.Load("resize", files, "resize")

type resizeReply struct {
	revision int64
	done     bool
}

// resize runs resize.lua.
func (s *Stock) resize(ctx context.Context, id string, limit int64, revision string) (resizeReply, error) {
	v, err := s.ints(ctx, 3, resizeScript, id, strconv.FormatInt(limit, 10), revision)
	if err != nil {
		return resizeReply{}, err
	}
	if v[0] == stockNone {
		return resizeReply{}, fmt.Errorf("%w: %q", ErrNotOpen, s.keys[0])
	}
	if err := s.verdict(v); err != nil {
		return resizeReply{}, err
	}
	s.shared().cache.forget()
	return resizeReply{revision: v[1], done: v[2] == 1}, nil
}
