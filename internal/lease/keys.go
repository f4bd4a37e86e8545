package lease

import (
	"context"
	"strconv"
	"sync"

	"github.com/redlatch/redlatch/internal/script"
)

// keys returns all keys of the lease.
func (l *Lease) keys() []string {
	if l.More == nil {
		return []string{l.Key}
	}
	return append([]string{l.Key}, *l.More...)
}

// renewEach renews each lease of a batch alone, because the server refused the batch as a whole (TRYAGAIN). If the
// batch were only postponed, it would be the same batch again: of two holds in a slot that is being migrated, on two
// nodes, neither would be renewed until both were lost (TestRenewals_LeasesApart_AreMadeOneByOne).
func (e *Engine) renewEach(ctx context.Context, conn script.Conn, batch []leaseRequest) {
	// All at the same time, because one may be at a node that does not answer. batchSize bounds their number.
	var wg sync.WaitGroup
	for i := range batch {
		wg.Go(func() { e.renewBatch(ctx, conn, batch[i:i+1]) })
	}
	wg.Wait()
}

// renewByKey renews a lease whose keys are on two nodes: each key alone, and all of them twice. The server refuses
// several keys also if one of them does not exist, as the ends of most writers and the notes of a semaphore. So this
// goes on from the first moment of a migration to the last.
//
// One pass would not do, because between two calls other processes may change a key that the first call has not reached
// yet. For example, a write hold has an end of its own, in the second key, that has just passed:
//
//	ours      raises the first key: it is held
//	another   finds the end passed, and removes the hold from both keys
//	ours      finds no end in the second key, as most write holds have none
//
// In the second pass the first key shows that nothing is held. Its verdict is true from the first pass on, and a hold
// that the keys show since then lasts as long as they were raised to (TestRenewal_KeysApart_IsMadeKeyByKey).
func (e *Engine) renewByKey(ctx context.Context, conn script.Conn, request leaseRequest,
	keys []string) (verdicts []int64, err error) {
	shortest := int64(1)
	for i := range 2 * len(keys) {
		number := i % len(keys)
		args := []string{request.Owner, script.Millis(request.length), strconv.Itoa(number + 1)}
		verdicts, err = e.callRenewal(ctx, conn, request.Renew, keys[number:number+1], args, 1, nil)
		if err != nil || verdicts[0] < 1 {
			return verdicts, err
		}
		if left := verdicts[0]; left > 1 && (left < shortest || shortest == 1) {
			shortest = left
		}
	}
	return []int64{shortest}, nil
}
