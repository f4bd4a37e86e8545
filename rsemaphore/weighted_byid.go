package rsemaphore

import (
	"context"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

// ReleaseIDs gives acquisitions back by their ids, all or none, each whatever it weighs: those of [WeightedPermit].IDs,
// of this process or another, or of [WeightedSemaphore.Inspect]. It serves waiters. So a stuck holder that goes on
// renewing is evicted. 1 to 1,000 ids, none twice.
//
// nil: all were held and are given back. ErrLost: not all of them are held; nothing was given back. ErrUnknownOutcome:
// a request was lost, and the ids may have been released by it. A *WeightedPermit whose id is released so is lost: it
// learns of it at its next renewal.
func (w *WeightedSemaphore) ReleaseIDs(ctx context.Context, ids ...string) error {
	return w.s.releaseIDs(ctx, ids, func(ctx context.Context, raw []string) (int64, error) {
		var others []string
		for _, id := range raw[1:] {
			others = append(others, baseOf(id), "")
		}
		return w.s.runWeightedRelease(ctx, baseOf(raw[0]), allOrNone, "", others...)
	})
}

// ExtendIDs makes acquisitions last for at least d from now, all or none, and shortens none: those of
// [WeightedPermit].IDs, of this process or another. d is at least 10 ms; 1 to 1,000 ids, none twice. A process that
// holds a weight for another's work keeps it so, without a *WeightedPermit: call ExtendIDs every third of d. Outcomes
// and errors are those of [Semaphore.ExtendIDs].
func (w *WeightedSemaphore) ExtendIDs(ctx context.Context, d time.Duration, ids ...string) error {
	return w.s.extendIDs(ctx, d, ids, func(raw []string, d time.Duration) exchange[bool] {
		args := []string{script.Millis(d + w.s.c.delay)}
		for _, id := range raw {
			args = append(args, baseOf(id))
		}
		return exchange[bool]{script.Call{Script: weightedExtendScript, Keys: []string{w.s.key, w.s.permits}, Args: args},
			func(m rueidis.RedisMessage) (held bool, err error) {
				err = read(m, "extend", w.s.key, &held)
				return held, err
			}}
	})
}

// InspectIDs looks at acquisitions by their ids, 1 to 1,000, none twice: a WeightedHolder for each, in their order. Its
// Lease and Weight are 0 if it is not held: released, over, or never granted. It changes nothing, and what it returns
// may be out of date when it is read. Unlike Inspect its cost does not grow with the acquisitions that are out.
func (w *WeightedSemaphore) InspectIDs(ctx context.Context, ids ...string) ([]WeightedHolder, error) {
	list, err := parseIDs(ids)
	if err != nil {
		return nil, err
	}
	bases := make([]string, len(list))
	for i, id := range list {
		bases[i] = baseOf(id)
	}
	state, err := ask(ctx, &w.s.object, w.inspectExchange(false, bases...), w.s.c.runner.Do)
	if err != nil {
		return nil, err
	}
	for i := range state.Permits {
		p := &state.Permits[i]
		p.ID, p.Client = idText(list[i]), idClient(list[i])
		if p.Lease == 0 {
			*p = WeightedHolder{Holder: Holder{ID: p.ID, Client: p.Client}}
		}
	}
	return state.Permits, nil
}

// baseOf is the base of an acquisition of a weight with that id, which is the first of its base. Any other id is
// none's: itself is none's base.
func baseOf(raw string) string {
	if base, ok := strings.CutSuffix(raw, "\x00\x00\x00"); ok {
		return base
	}
	return raw
}
