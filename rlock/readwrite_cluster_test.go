package rlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// TestReadersAndWritersWaitThroughAMigration: in a slot that is being migrated a writer makes do with the lock's own
// key, and nobody is served from the line. Readers wait until it is through: a read without its timeout key would not
// be safe beside Redisson. Whoever stands in line when it begins is served afterwards, and nothing is left of a place
// that was overtaken.
func TestReadersAndWritersWaitThroughAMigration(t *testing.T) {
	redistest.InFull(t, "TestWhileTheirSlotIsMigratedFairAndReadWriteLocksAreReleased")
	t.Parallel()
	s := redistest.Cluster(t)
	o := rlock.Options{PollCap: 2 * time.Second}
	holder, other := newRig(t, s, o), newRig(t, s, o)
	m := newMove(t, s, "{l}")
	for round, held := range []func(rw *rlock.ReadWriteLock) *rlock.Lock{(*rlock.ReadWriteLock).Write,
		(*rlock.ReadWriteLock).Read} {
		name := fmt.Sprint("{l}", round)
		h := lock(t, held(holder.locks.ReadWrite(name)), within(t))
		rw := other.locks.ReadWrite(name)
		writer := acquiring(t, rw.Write())
		inLine := func(n int) {
			redistest.Eventually(t, 30*time.Second, "they wait", func() bool {
				i, err := rw.Write().Inspect(within(t))
				return err == nil && len(i.Waiters) == n
			})
		}
		inLine(1)
		reader := acquiring(t, rw.Read().WithLease(30*time.Second))
		inLine(2)
		m.begin()
		require.NoError(t, h.Unlock(within(t)))
		g := <-writer
		require.NoError(t, g.err, "with the lock's own key")
		select {
		case <-reader:
			t.Fatal("a reader beside the writer")
		default:
		}
		keys, err := m.from.Do(within(t), m.from.B().Keys().Pattern("*").Build()).AsStrSlice()
		require.NoError(t, err)
		for _, key := range keys {
			m.key(key)
		}
		m.end()
		require.NoError(t, g.hold.Unlock(within(t)))
		g = <-reader
		require.NoError(t, g.err)
		require.NoError(t, g.hold.Unlock(within(t)))
		redistest.Eventually(t, 30*time.Second, "nothing is held, and nobody in line", func() bool {
			i, err := rw.Write().Inspect(within(t))
			return err == nil && !i.Locked && len(i.Waiters) == 0
		})
		m = m.back()
	}
}
