package interop_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestReadWrite_ReadersOfBothLanguages_ShareAndBlockWriters(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		name, reader, java := unique(t, "rw"), w.lane(t), w.lane(t)
		rw := r.locks.ReadWrite(name)
		ours := hold(t, rw.Read(), within(t))
		reader.do(t, "lock", "read", name, -1)
		again := hold(t, rw.Read(), ours.Context(within(t)))
		require.Equal(t, "true", w.lane(t).do(t, "trynow", "read", name), "readers share")
		another := hold(t, rw.Read(), within(t))
		release(t, another)
		st := redistest.NoError(r.locks.Reentrant(name).Inspect(within(t)))(t)
		require.Equal(t, "read", st.Mode)
		require.Len(t, st.Holders, 3)
		refused(t, rw.Write())
		require.Equal(t, "false", java.do(t, "trynow", "write", name))
		release(t, again)
		release(t, ours)
		refused(t, rw.Write())
		require.Equal(t, "true", reader.do(t, "held", "read", name), "our release leaves Java's hold")
		ok, err := rw.Read().ForceUnlock(within(t)) // of the third, whose thread we have let go
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "true", java.do(t, "trynow", "write", name))
		refused(t, rw.Read())
		refused(t, rw.Write())
		require.Equal(t, "false", reader.do(t, "trynow", "read", name))
		java.do(t, "unlock", "write", name)
		free(t, rw.Write())
		require.False(t, r.exists(t, name))
	})
}

func TestReadWrite_LastReaderLeaves_WakesTheWriterOfTheOtherLanguage(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		for _, javaWrites := range []bool{true, false} {
			for _, javaLast := range []bool{true, false} {
				name := unique(t, "rw")
				first, last := w.player(t, !javaLast, r), w.player(t, javaLast, r)
				first.lock(t, "read", name)
				last.lock(t, "read", name)
				writer := w.player(t, javaWrites, r)
				answer := writer.asks(t, "write", name, 0)
				w.listening(t, name)
				began := time.Now()
				first.unlock(t, "read", name)
				last.unlock(t, "read", name)
				has(t, answer)
				require.Less(t, time.Since(began), soon, "java writes: %v, java reads last: %v", javaWrites, javaLast)
				writer.unlock(t, "write", name)
			}
		}
	})
}

// TestReadWrite_Downgrade_AdmitsReadersOfTheOtherLanguage: ours wakes those that wait; Redisson's publishes nothing, so
// that ours come in when they look.
func TestReadWrite_Downgrade_AdmitsReadersOfTheOtherLanguage(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		name, java := unique(t, "rw"), w.lane(t)
		rw := r.locks.ReadWrite(name)
		write := hold(t, rw.Write(), within(t))
		read := hold(t, rw.Read(), write.Context(within(t)))
		waiter := java.send("lock", "read", name, -1)
		w.listening(t, name)
		began := time.Now()
		release(t, write)
		got(t, waiter)
		require.Less(t, time.Since(began), soon)
		refused(t, rw.Write())
		release(t, read)
		refused(t, rw.Write())
		java.do(t, "unlock", "read", name)

		java.do(t, "lock", "write", name, -1)
		java.do(t, "lock", "read", name, -1)
		refused(t, rw.Read())
		java.do(t, "unlock", "write", name)
		free(t, rw.Read())
		refused(t, rw.Write())
		require.Equal(t, "true", java.do(t, "held", "read", name), "our reader left Java's hold alone")
		java.do(t, "unlock", "read", name)
		free(t, rw.Write())
	})
}

// TestReadWrite_ReaderLeaves_LockKeepsTheLongestLease: each unlock leaves the lock for as long as the longest of those
// that remain.
func TestReadWrite_ReaderLeaves_LockKeepsTheLongestLease(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		r := w.rig(t)
		name, java := unique(t, "rw"), w.lane(t)
		rw := r.locks.ReadWrite(name)
		java.do(t, "lock", "read", name, (3 * lease).Milliseconds())
		ours := hold(t, rw.Read().WithLease(lease), within(t))
		sameLease(t, 3*lease, r.pttl(t, name))
		java.do(t, "unlock", "read", name)
		sameLease(t, lease, r.pttl(t, name))
		java.do(t, "lock", "read", name, (3 * lease).Milliseconds())
		release(t, ours)
		sameLease(t, 3*lease, r.pttl(t, name))
		refused(t, rw.Write())
		java.do(t, "unlock", "read", name)
		free(t, rw.Write())
	})
}

// TestReadWrite_JavaReaderUnlocksAfterAHandOver_KeepsOurReader: Redisson's unlock of a reader deletes the lock
// unless it finds a living timeout key of another reader. Whoever hands the lock to a reader of ours cannot write that
// reader's timeout key, which is not a key of its script. So the reader has made it when it queued. Otherwise Java's
// unlock would delete the lock under our reader, and a writer would get in beside it.
func TestReadWrite_JavaReaderUnlocksAfterAHandOver_KeepsOurReader(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		a, b := w.rig(t), w.rig(t)
		name, java := unique(t, "rw"), w.lane(t)
		rw := a.locks.ReadWrite(name)
		write := hold(t, rw.Write(), within(t))
		read := hold(t, rw.Read(), write.Context(within(t))) // a downgrade, so that Java is let in for sure
		ours := waiting(t, b.locks.ReadWrite(name).Read())
		a.queuedUp(t, name, 1)
		theirs := java.send("lock", "read", name, -1)
		w.listening(t, name)
		release(t, write)
		got(t, theirs)
		g := <-ours
		require.NoError(t, g.err)
		release(t, read)
		java.do(t, "unlock", "read", name)
		st := redistest.NoError(a.locks.Reentrant(name).Inspect(within(t)))(t)
		require.Len(t, st.Holders, 1, "Java's unlock has left ours")
		require.Equal(t, string(g.hold.Owner()), st.Holders[0].ID)
		require.Equal(t, "false", w.lane(t).do(t, "trynow", "write", name))
		refused(t, rw.Write())
		require.NoError(t, g.hold.Err())
		release(t, g.hold)
		free(t, rw.Write())
	})
}

// TestReadWrite_JavaWaits_OnlyThenOurReadersMakeRoom: a reader of ours listens where Java publishes while Java writes,
// and its process does for a while afterwards. That is no Java that waits. A Java that does is given its turn, also
// beside it.
func TestReadWrite_JavaWaits_OnlyThenOurReadersMakeRoom(t *testing.T) {
	each(t, everywhere, func(t *testing.T, w *world) {
		name, java, writer := unique(t, "rw"), w.lane(t), w.lane(t)
		java.do(t, "lock", "write", name, -1)
		java.do(t, "lock", "read", name, -1)
		first := waiting(t, w.rigOf(t, 100*time.Millisecond, 0).locks.ReadWrite(name).Read())
		w.listening(t, name)
		java.do(t, "unlock", "write", name)
		g := <-first
		require.NoError(t, g.err)
		read := w.rig(t).locks.ReadWrite(name).Read()
		for began := time.Now(); time.Since(began) < 400*time.Millisecond; { // twice the time after which Java has a turn
			free(t, read)
		}

		turn := writer.send("lock", "write", name, -1)
		redistest.Eventually(t, 20*time.Second, "readers make room for Java's writer", func() bool {
			h, err := read.TryLock(within(t), 0, 0)
			if err == nil {
				release(t, h)
			}
			return errors.Is(err, errs.ErrNotAcquired)
		})
		release(t, g.hold)
		java.do(t, "unlock", "read", name)
		got(t, turn)
		refused(t, read)
		writer.do(t, "unlock", "write", name)
		free(t, read)
	})
}
