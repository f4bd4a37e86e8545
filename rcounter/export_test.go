package rcounter

import (
	"context"

	"github.com/redlatch/redlatch/internal/batch"
)

// Added is how one Add of several in a call was answered.
type Added struct {
	Value int64
	Err   error
}

// Adding is one Add in a call of several.
type Adding struct {
	K *Counter
	D int64
}

// AddTogether makes the Adds in one call.
func (c *Client) AddTogether(ctx context.Context, adds ...Adding) []Added {
	requests := make([]*batch.Request[addition, int64], len(adds))
	for i, a := range adds {
		requests[i] = &batch.Request[addition, int64]{Ctx: ctx, Ask: addition{a.K, a.D}}
	}
	c.addAll(ctx, requests)
	answers := make([]Added, len(adds))
	for i, r := range requests {
		answers[i] = Added{r.Answer, r.Err}
	}
	return answers
}

func (k *Counter) IDKeys(id string) (first, second string) {
	keys := k.idKeys(id)
	return keys[1], keys[2]
}

func (k *Counter) AddOnceAs(ctx context.Context, call, id string, d int64) (v int64, replayed bool, err error) {
	return k.addOnce(ctx, call, id, d)
}
