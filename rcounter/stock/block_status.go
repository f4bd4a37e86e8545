package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// BlockStatus is a block as the server knows it.
type BlockStatus struct {
	// Grant has the block's units and its id, Request. Until is when the block can be settled, because its owner has stopped by
	// then; it is counted from when the server's answer arrived, and zero if the block has ended.
	Grant Grant
	// Owner is the machine and the process that made the block, as that machine calls itself; empty if it has ended.
	Owner string
	// Taken is how many of the units were handed out, in the order of their ordinals, as the owner or SettleBlock last said.
	Taken int64
	// Ended reports whether the rest was given back, by the owner or by SettleBlock.
	Ended bool
}

// Blocks lists the stock's blocks by their ordinals, also those that have ended. One round trip for about 500 blocks.
func (s *Stock) Blocks(ctx context.Context) (_ []BlockStatus, err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return nil, err
	}
	return s.blocks(ctx, blocksPage)
}

// SettleBlock ends a block in the place of an owner that is gone. taken is how many of its units were handed out; the rest goes
// back to the stock, and SettleBlock returns how many units that were. One round trip, repeated until answered.
//
// Take hands out ordinals in their order. So taken is the highest ordinal in the caller's own records, minus the block's Ordinal,
// plus 1, or 0 if the records have none. Read the records after the block's time is over and the owner's work has ended.
// Otherwise a unit that was handed out can be sold twice.
//
// Errors, by which nothing is changed: ErrBlockHeld if the block's time is not over; ErrBlockEnded if it was closed or settled
// before; ErrInvalidOption if taken is less than the owner said, or more than the block had; ErrNotFound.
func (s *Stock) SettleBlock(ctx context.Context, id string, taken int64) (returned int64, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("id", id)); err != nil {
		return 0, err
	}
	if taken < 0 || taken > maxLimit {
		return 0, errs.InvalidOption("taken", taken, fmt.Sprintf("between 0 and %d", int64(maxLimit)))
	}
	return s.endBlock(ctx, session.CallID(), id, taken, blockSettle, 0)
}

var blocksScript = script.Load("blocks", files, "blocks")

// blocks runs blocks.lua for all pages.
func (s *Stock) blocks(ctx context.Context, size int) ([]BlockStatus, error) {
	bad := malformed("blocks", s.keys[0])
	byID := map[string]BlockStatus{} // a scan may show an entry twice
	for cursor := "0"; ; {
		m, err := s.c.calls.Do(ctx, s.call(blocksScript, cursor, strconv.Itoa(size)))
		if err != nil {
			return nil, err
		}
		parts, err := m.ToArray()
		if err != nil || len(parts) != 3 {
			return nil, bad
		}
		v, err1 := parts[0].AsIntSlice()
		next, err2 := parts[1].ToString()
		entries, err3 := parts[2].AsStrSlice()
		if errors.Join(err1, err2, err3) != nil || len(v) < 3 || len(entries)%3 != 0 {
			return nil, bad
		}
		if v[0] == stockNone {
			return nil, nil
		}
		if err := s.verdict(v); err != nil {
			return nil, err
		}
		for i := 0; i < len(entries); i += 3 {
			b, ok := parseBlock(entries[i+1], entries[i+2], v[2])
			if !ok {
				return nil, corrupt(s.keys[0], -1, 0)
			}
			b.Grant.Request, b.Grant.Epoch = entries[i], v[1]
			byID[entries[i]] = b
		}
		if cursor = next; cursor == "0" {
			break
		}
	}
	var all []BlockStatus
	for _, b := range byID {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b BlockStatus) int { return cmp.Compare(a.Grant.Ordinal, b.Grant.Ordinal) })
	return all, nil
}

// parseBlock decodes 'state;taken;deadline;owner' and 'ordinal;n;…'; now is the server's time.
func parseBlock(block, units string, now int64) (BlockStatus, bool) {
	f := strings.SplitN(block, ";", 4)
	a, ok := parseAny(units)
	if !ok || len(f) != 4 {
		return BlockStatus{}, false
	}
	b := BlockStatus{Grant: Grant{Outcome: Replayed, Ordinal: a.ordinal, N: a.n}, Taken: number(f[1]), Ended: f[0] != "O"}
	deadline := number(f[2])
	if !b.Ended {
		b.Owner, b.Grant.Until = f[3], time.Now().Add(script.Duration(deadline-now))
	}
	return b, b.Taken >= 0 && deadline >= 0
}

// blocksPage is about how many records one call of Blocks reads.
const blocksPage = 500
