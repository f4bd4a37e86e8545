package rsemaphore

import (
	"context"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

func (s *Semaphore) weightedExtendExchange(ids []string, d time.Duration) exchange[bool] {
	args := []string{script.Millis(d)}
	for _, id := range ids {
		args = append(args, baseOf(id))
	}
	return exchange[bool]{script.Call{Script: weightedExtendScript, Keys: []string{s.key, s.permits}, Args: args},
		func(m rueidis.RedisMessage) (held bool, err error) {
			err = read(m, "extend", s.key, &held)
			return held, err
		}}
}

// inspectWeights looks at acquisitions of weights by their ids.
func (s *Semaphore) inspectWeights(ctx context.Context, ids []string) ([]Holder, error) {
	bases := make([]string, len(ids))
	for i, id := range ids {
		bases[i] = baseOf(id)
	}
	state, err := ask(ctx, &s.object, s.weightedInspectExchange(false, bases...), s.c.runner.Do)
	if err != nil {
		return nil, err
	}
	for i := range state.Permits {
		p := &state.Permits[i]
		p.ID, p.Client = idText(ids[i]), idClient(ids[i])
		if p.Lease == 0 {
			*p = Holder{ID: p.ID, Client: p.Client}
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
