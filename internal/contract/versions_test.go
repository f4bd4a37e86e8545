package contract_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
)

// versionedObject is an object of ours that can be marked by a later version: see "Versions" in docs/design/keys.md.
type versionedObject struct {
	mark  []string // the command with which a later version marks it
	acts  []act
	reads []string // acts that read only what both versions know
}

// versionedObjects makes one object of each kind, and returns them by their names.
func versionedObjects(t *testing.T, red *redlatch.Client) map[string]versionedObject {
	ctx := t.Context()
	must := func(err error) { require.NoError(t, err) }
	sale := red.Sales().Sale("phones")
	must(sale.Open(ctx, saleSpec))
	must(err1(sale.Buy(ctx, stock.Order{ID: "sold", User: "bob"})))
	must(err1(sale.Reserve(ctx, stock.Order{ID: "reserved", User: "joe"}, time.Hour)))
	packet := red.RedPackets().Packet("gift")
	must(err1(packet.Send(ctx, redpacket.Spec{Total: 100, Shares: 5, OpenFor: time.Hour, Ledger: true})))
	must(err1(packet.Grab(ctx, "bob")))
	semaphore := red.Semaphores().Semaphore("exports", 3)
	must(err1(semaphore.Resize(ctx, 4)))
	weighted := red.Semaphores().WeightedSemaphore("memory", 9)
	must(err1(weighted.TryAcquire(ctx, 5, 0, time.Hour)))
	latch := red.Semaphores().CountDownLatch("ready")
	must(err1(latch.TrySetCount(ctx, 3, time.Hour)))
	must(err1(latch.CountDownBy(ctx, "zero")))
	barrier := red.Semaphores().CyclicBarrier("start", 2)
	left, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	require.Error(t, err1(barrier.Await(left)))
	limiter := red.Limiters().Limiter("api", ratelimit.LimiterOptions{Rate: 5, Per: time.Hour, Stored: true})
	must(limiter.Set(ctx, "me"))

	once := red.Locks().Once("pay", rlock.OnceOptions{})
	must(err2(once.Do(ctx, "7", "", func(context.Context, int64) ([]byte, error) { return []byte("answer"), nil })))

	resize := returns("Semaphore.Resize", func(ctx context.Context) (int, error) { return semaphore.Resize(ctx, 5) })
	enlarge := returns("Semaphore.Resize", func(ctx context.Context) (int, error) { return weighted.Resize(ctx, 5) })
	return map[string]versionedObject{
		"phones": {mark: []string{"HSET", "rc:{phones}:sale", "state", "v2 1"}, acts: saleActs(sale)},
		"gift":   {mark: []string{"HSET", "rc:{gift}:p", "state", "v2 1"}, acts: packetActs(packet)},
		"exports": {mark: []string{"HSET", "{exports}:notes", "capacity", "v2 4"},
			acts: append(semaphoreActs(semaphore, 1), resize)},
		"memory": {mark: []string{"HSET", "{memory}:weighted", "capacity", "v2 9"},
			acts: append(semaphoreActs(weighted, 1), enlarge)},
		"pay": {mark: []string{"HSET", "{pay:7}:answer", "stale", "v2 0"}, acts: onceActs(once, "7")},
		"ready": {mark: []string{"HSET", "{ready}:latch", "gen", "v2 1"}, acts: latchActs(latch), reads: []string{
			"CountDownLatch.Count", "CountDownLatch.Inspect", "CountDownLatch.Await", "CountDownLatch.TrySetCount"}},
		"start": {mark: []string{"HSET", "{start}:barrier", "gen", "v2 1"}, acts: barrierActs(barrier)},
		"api": {mark: []string{"SET", "rc:{api}:l3", "v2 g,9,1,1;1;me"}, acts: append(storedActs(limiter),
			returns("Limiter.Inspect", limiter.Inspect))},
	}
}

func TestVersions_ObjectOfALaterVersion_IsErrNewerAndUnchanged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	red := s.process(t)
	for name, object := range versionedObjects(t, red) {
		s.send(t, object.mark...)
		before := s.contents(t, name)
		for _, a := range object.acts {
			ctx, cancel := context.WithTimeout(t.Context(), tooLong)
			if slices.Contains(object.reads, a.name) {
				ctx, cancel = context.WithTimeout(t.Context(), patience)
				_ = a.do(ctx)
			} else {
				require.ErrorIs(t, a.do(ctx), errs.ErrNewer, "%s of %s", a.name, name)
			}
			cancel()
			require.Equal(t, before, s.contents(t, name), a.name)
		}
	}
}

// The algorithm of a limit is its version: nobody has to be told of a later one.
func TestVersions_LimitOfALaterVersion_IsErrWrongTypeAndUnchanged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	red := s.process(t)
	limiter := red.Limiters().Limiter("mail", ratelimit.LimiterOptions{Rate: 5, Per: time.Hour})
	s.send(t, "SET", "rc:{mail}:q4", "h;7;later")
	require.ErrorIs(t, err1(limiter.Allow(t.Context(), "", 2)), errs.ErrWrongType)
	require.ErrorIs(t, err1(limiter.Reserve(t.Context(), "", 2)), errs.ErrWrongType)
	kept, err := s.send(t, "GET", "rc:{mail}:q4").ToString()
	require.NoError(t, err)
	require.Equal(t, "h;7;later", kept)
}

// A field that this version does not know is of a later one. It stays, and changes no answer.
func TestVersions_UnknownField_IsKeptAndIgnored(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	red := s.process(t)
	for name, object := range versionedObjects(t, red) {
		if object.mark[0] != "HSET" {
			continue
		}
		key := object.mark[1]
		s.send(t, "HSET", key, "later", "x")
		for _, a := range object.acts {
			if a.name == "Sale.Restore" || a.name == "Sale.Delete" || a.name == "CountDownLatch.Await" {
				continue // they make the sale anew, remove it, and wait
			}
			ctx, cancel := context.WithTimeout(t.Context(), tooLong)
			if a.waits {
				ctx, cancel = context.WithTimeout(t.Context(), patience)
			}
			require.NotErrorIs(t, a.do(ctx), errs.ErrWrongType, "%s of %s", a.name, name)
			cancel()
			kept, err := s.send(t, "HGET", key, "later").ToString()
			require.NoError(t, err, "%s of %s", a.name, name)
			require.Equal(t, "x", kept)
		}
	}
}
