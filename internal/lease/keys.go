package lease

import (
	"context"
	"strconv"
	"sync"

	"github.com/redlatch/redlatch/internal/script"
)

// keys are all keys of the lease.
func (l *Lease) keys() []string {
	if l.More == nil {
		return []string{l.Key}
	}
	return append([]string{l.Key}, *l.More...)
}

// deliverEach renews each lease of a batch alone, because the server refused the batch as a whole (TRYAGAIN). Put off
// to the same instant, all of it would be the same batch again: of two holds in a slot that is being migrated, on two
// nodes, neither would be renewed until both were lost (TestRenewals_LeasesApart_AreMadeOneByOne).
func (e *Engine) deliverEach(ctx context.Context, conn script.Conn, batch []asked) {
	// All at the same time: one may be at a node that does not answer. Their number is bounded with the batch's.
	var wg sync.WaitGroup
	for i := range batch {
		wg.Go(func() { e.deliver(ctx, conn, batch[i:i+1]) })
	}
	wg.Wait()
}

// askByKey renews a lease whose keys are on two nodes: each key alone, and all of them twice. The server refuses
// several keys also if one of them does not exist, as the ends of most writers and the notes of a semaphore, so this
// goes on from the first moment of a migration to the last.
//
// Asking each key once would not do, because between two calls others may change a key that the first call has not
// reached yet. For example, a write hold has an end of its own, in the second key, that has just passed:
//
//	ours      raises the first key: it is held
//	another   finds the end passed, and takes the hold out of both keys
//	ours      finds no end in the second key, as most write holds have none
//
// The second time the first key says that nothing is held. That answer is true from the first time on, and a hold that
// the keys show since then lasts as long as they were raised to (TestRenewal_KeysApart_IsMadeKeyByKey).
func (e *Engine) askByKey(ctx context.Context, conn script.Conn, a asked, keys []string) (verdicts []int64, err error) {
	least := int64(1)
	for i := range 2 * len(keys) {
		n := i % len(keys)
		args := []string{a.Owner, script.Millis(a.length), strconv.Itoa(n + 1)}
		if verdicts, err = e.ask(ctx, conn, a.Renew, keys[n:n+1], args, 1, nil); err != nil || verdicts[0] < 1 {
			return verdicts, err
		}
		if v := verdicts[0]; v > 1 && (v < least || least == 1) {
			least = v
		}
	}
	return []int64{least}, nil
}
