package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/history"
)

func reads(owner int, out history.Outcome, call, ret, lease time.Duration) history.Op {
	op := acquire(owner, out, call, ret, lease)
	op.Kind = history.AcquireRead
	return op
}

func readDone(owner int, out history.Outcome, call, ret time.Duration) history.Op {
	op := release(owner, out, call, ret)
	op.Kind = history.ReleaseRead
	return op
}

// In these histories owner 9 reads under writer 1.
var rwModel = history.RWLockModel{LockModel: model, Under: func(owner int) int {
	if owner == 9 {
		return 1
	}
	return 0
}}

func TestSoundReadWriteHistoriesAreAccepted(t *testing.T) {
	const ok, refused, unknown = history.OK, history.Refused, history.Unknown
	for name, l := range map[string]*history.Log{
		"readers together": logOf(reads(1, ok, 0, 1*ms, 100*ms), reads(2, ok, 2*ms, 3*ms, 100*ms),
			readDone(1, ok, 4*ms, 5*ms), readDone(2, ok, 6*ms, 7*ms)),
		"a writer between readers": logOf(reads(1, ok, 0, 1*ms, 100*ms), readDone(1, ok, 2*ms, 3*ms),
			acquire(2, ok, 4*ms, 5*ms, 100*ms), reads(3, refused, 6*ms, 7*ms, 100*ms), release(2, ok, 8*ms, 9*ms),
			reads(3, ok, 10*ms, 11*ms, 100*ms)),
		"a writer refused by a reader": logOf(reads(1, ok, 0, 1*ms, 100*ms), acquire(2, refused, 2*ms, 3*ms, 100*ms),
			readDone(1, ok, 4*ms, 5*ms)),
		"a writer after a reader's lease": logOf(reads(1, ok, 0, 1*ms, 100*ms), acquire(2, ok, 110*ms, 111*ms, 100*ms),
			release(2, ok, 112*ms, 113*ms),
			readDone(1, refused, 120*ms, 121*ms)),
		"a downgrade": logOf(acquire(1, ok, 0, 1*ms, 100*ms), reads(9, ok, 2*ms, 3*ms, 100*ms),
			reads(3, refused, 4*ms, 5*ms, 100*ms), release(1, ok, 6*ms, 7*ms),
			reads(3, ok, 8*ms, 9*ms, 100*ms), acquire(4, refused, 10*ms, 11*ms, 100*ms), readDone(9, ok, 12*ms, 13*ms),
			readDone(3, ok, 14*ms, 15*ms), acquire(4, ok, 16*ms, 17*ms, 100*ms)),
		"an unknown reader keeps a writer out, or does not": logOf(reads(1, unknown, 0, 5*ms, 100*ms),
			acquire(2, refused, 50*ms, 51*ms, 100*ms), acquire(3, ok, 60*ms, 61*ms, 100*ms)),
		"an unknown release of one of two readers": logOf(reads(1, ok, 0, 1*ms, 100*ms),
			reads(2, ok, 2*ms, 3*ms, 100*ms), readDone(1, unknown, 4*ms, 5*ms), readDone(2, ok, 6*ms, 7*ms),
			acquire(3, refused, 8*ms, 9*ms, 100*ms), acquire(4, ok, 10*ms, 11*ms, 100*ms)),
	} {
		require.NoError(t, rwModel.Check(l), name)
	}
}

func TestPlantedFaultsOfReadWriteLocksAreFound(t *testing.T) {
	const ok, refused, unknown = history.OK, history.Refused, history.Unknown
	for name, l := range map[string]*history.Log{
		"a writer beside a reader": logOf(reads(1, ok, 0, 1*ms, 100*ms),
			acquire(2, ok, 2*ms, 3*ms, 100*ms), readDone(1, ok, 4*ms, 5*ms), release(2, ok, 6*ms, 7*ms)),
		"a reader beside a writer": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			reads(2, ok, 2*ms, 3*ms, 100*ms), release(1, ok, 4*ms, 5*ms), readDone(2, ok, 6*ms, 7*ms)),
		"two writers": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			acquire(2, ok, 2*ms, 3*ms, 100*ms), release(1, ok, 4*ms, 5*ms), release(2, ok, 6*ms, 7*ms)),
		"a writer beside the second of two readers": logOf(reads(1, ok, 0, 1*ms, 100*ms), reads(2, ok, 2*ms, 3*ms, 100*ms),
			readDone(1, ok, 4*ms, 5*ms), acquire(3, ok, 6*ms, 7*ms, 100*ms), readDone(2, ok, 8*ms, 9*ms)),
		"a writer beside a reader that was a writer": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			reads(9, ok, 2*ms, 3*ms, 100*ms), release(1, ok, 4*ms, 5*ms), acquire(3, ok, 6*ms, 7*ms, 100*ms),
			readDone(9, ok, 8*ms, 9*ms)),
		"a writer before a renewed reader is through": logOf(renewed(reads(1, ok, 0, 1*ms, 100*ms)),
			acquire(2, ok, 500*ms, 501*ms, 100*ms), readDone(1, ok, 900*ms, 901*ms)),
		"a reader refused by readers": logOf(reads(1, ok, 0, 1*ms, 100*ms),
			reads(2, refused, 2*ms, 3*ms, 100*ms), readDone(1, ok, 4*ms, 5*ms)),
		"a writer refused by nobody": logOf(reads(1, ok, 0, 1*ms, 100*ms), readDone(1, ok, 2*ms, 3*ms),
			acquire(2, refused, 4*ms, 5*ms, 100*ms)),
		"a dead reader that outlives its lease": logOf(reads(1, unknown, 0, 5*ms, 100*ms),
			renewed(reads(2, ok, 6*ms, 7*ms, 100*ms)), readDone(2, ok, 200*ms, 201*ms),
			acquire(3, refused, 202*ms, 203*ms, 100*ms)),
		"released twice": logOf(reads(1, ok, 0, 1*ms, 100*ms), readDone(1, ok, 2*ms, 3*ms),
			readDone(1, ok, 4*ms, 5*ms)),
		"held, and its release refused": logOf(renewed(reads(1, ok, 0, 1*ms, 100*ms)),
			readDone(1, refused, 2*ms, 3*ms)),
	} {
		require.ErrorContains(t, rwModel.Check(l), "not the history of a read-write lock", name)
	}
}
