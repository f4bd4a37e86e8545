package rsemaphore

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// idSize is the length of a permit's id on the server. Redisson's ids are random. Our ids are the first eight bytes of
// the client's connection id, by which Inspect names the client, and a number.
const idSize = 16

// baseSize is the length of the part that the ids of one acquisition share. The rest is their number: see lib/ids.lua.
const baseSize = 13

// newOwner returns an owner of that many permits, or of one record of that weight. Its base was never used before: the
// client's eight bytes, and the last five of a number, with marks if the permits are not renewed, and if they are of a
// tenant.
func (c *Client) newOwner(permits int, renewed, ofTenant bool) string {
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], c.lastBase.Add(1))
	if !renewed {
		number[3] |= fixedLeaseBit
	}
	if ofTenant {
		number[3] |= tenantBit
	}
	var room [baseSize + 20]byte
	text := append(append(room[:0], c.seed[:]...), number[3:]...)
	return string(strconv.AppendInt(text, int64(permits), 10))
}

// idOf returns the id with that index, from 0.
func idOf(base string, index int) string {
	return base + string([]byte{byte(index >> 16), byte(index >> 8), byte(index)})
}

// idText returns the public form of an id, which Redisson takes, too.
func idText(raw string) string { return hex.EncodeToString([]byte(raw)) }

// idClient returns the beginning of the connection id in one of our ids. One of Redisson's ids in sixteen looks like
// ours by chance; then the result is a client that does not exist.
func idClient(raw string) string {
	if len(raw) != idSize || raw[6]>>4 != 8 {
		return ""
	}
	return fmt.Sprintf("%x-%x-%x", raw[:4], raw[4:6], raw[6:8])
}

// parseIDs returns the raw ids.
func parseIDs(ids []string) ([]string, error) {
	if len(ids) < 1 || len(ids) > maxIDs {
		return nil, fmt.Errorf("rsemaphore: %w",
			errs.InvalidOption("number of ids", len(ids), fmt.Sprintf("1 to %d", maxIDs)))
	}
	raw := make([]string, len(ids))
	for index, id := range ids {
		decoded, err := hex.DecodeString(id)
		if err != nil || len(decoded) != idSize {
			return nil, fmt.Errorf("rsemaphore: %w: id is %.64q, must be %d hexadecimal digits", errs.ErrInvalidOption, id,
				2*idSize)
		}
		raw[index] = string(decoded)
	}
	sorted := slices.Sorted(slices.Values(raw))
	if permits := len(slices.Compact(sorted)); permits < len(raw) {
		return nil, fmt.Errorf("rsemaphore: %w",
			errs.InvalidOption("number of different ids", permits, fmt.Sprintf("%d: none may be given twice", len(raw))))
	}
	return raw, nil
}

// ReleaseIDs gives permits back by their ids, all or none: ids of [Permit.IDs], of this process or another, or of
// Redisson. 1 to 1,000 ids, none twice. A *Permit whose id is released so is lost, and ends at its next renewal. The
// results are:
//
//   - nil: all were held and are given back.
//   - ErrLost: not all of them are held (released before, never granted, or their lease is over). Nothing was given
//     back.
//   - ErrUnknownOutcome: a request got no reply, and may have released the ids.
func (s *Semaphore) ReleaseIDs(ctx context.Context, ids ...string) error {
	list, err := parseIDs(ids)
	if err != nil {
		return err
	}
	_, err = session.Ask(ctx, s.c.session, s.bad, func(ctx context.Context) (held int64, err error) {
		outcomeUnknown, err := script.Repeat(ctx, false, func() (err error) {
			held, err = s.runRelease(ctx, strings.Join(list, ""), allOrNone, "") // -1: not all are held
			return err
		})
		if outcomeUnknown { // the lost reply may name waiters of this process that were served
			s.c.waiters.PollAll(s.queueKey)
		}
		switch {
		case err != nil:
			return 0, err
		case held < 0 && outcomeUnknown:
			return 0, fmt.Errorf("%w: release on %q: an earlier request may have released them", errs.ErrUnknownOutcome, s.name)
		case held < 0:
			return 0, fmt.Errorf("release on %q: %w", s.name, errs.ErrLost)
		}
		return held, nil
	})
	return err
}

// ExtendIDs makes permits last for at least extension from now, all or none, and shortens none: ids of [Permit.IDs], of
// this process or another, or of Redisson. It is Redisson's updateLeaseTime. extension is at least 10 ms; 1 to 1,000
// ids, none twice. A process that holds permits for another's work keeps them this way, without a *Permit: call
// ExtendIDs every third of extension. A *Permit of these ids does not move its Until. The results are:
//
//   - nil: all were held, and will be for extension from the send of this call.
//   - ErrLost: not all of them are held. Nothing was changed.
//   - ErrUnavailable: nothing was changed.
//   - ErrUnknownOutcome: a request got no reply, and may have extended them.
//   - ErrNotReplicated: they were extended, and too few replicas confirmed it.
func (s *Semaphore) ExtendIDs(ctx context.Context, extension time.Duration, ids ...string) error {
	list, err := parseIDs(ids)
	if err != nil {
		return err
	}
	if err := session.CheckRange("d", extension, session.MinLease); err != nil {
		return s.c.session.Error(err)
	}
	call := s.c.session.Confirmed(script.Call{Script: s.store.extend, Keys: s.keys(),
		Args: append([]string{script.Millis(extension)}, list...)})
	held, err := session.Ask(ctx, s.c.session, s.bad, func(ctx context.Context) (held bool, err error) {
		err = exchange(ctx, s.c.runner.Do, "extend", call, &held)
		return held, err
	})
	if err == nil && !held {
		err = s.c.session.Error(fmt.Errorf("extend on %q: %w", s.name, errs.ErrLost))
	}
	return err
}

// InspectIDs returns a Holder for each of the ids, in their order; 1 to 1,000 ids, none twice. Lease and N are 0 if the
// permit is not held: released, over, or never granted. InspectIDs changes nothing, and its result may be out of date
// when it is read. Unlike Inspect its cost does not grow with the number of permits held.
func (s *Semaphore) InspectIDs(ctx context.Context, ids ...string) ([]Holder, error) {
	list, err := parseIDs(ids)
	if err != nil {
		return nil, err
	}
	state, err := s.inspect(ctx, 0, list...)
	return state.Permits, err
}
