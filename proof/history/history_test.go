package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/proof/history"
)

// In these histories owner 9 reads under writer 1.
var model = history.LockModel{Slack: 2 * time.Millisecond, LateAcquire: 10 * time.Millisecond,
	Late: 10 * time.Millisecond, Timeout: 20 * time.Second, Under: func(owner int) int { return owner / 9 }}

const ms = time.Millisecond

func logOf(ops ...history.Op) *history.Log {
	l := history.New()
	for _, op := range ops {
		op.Lock = "l"
		l.Add(op)
	}
	return l
}

func acquire(owner int, out history.Outcome, call, ret, lease time.Duration) history.Op {
	return history.Op{Client: owner, Owner: owner, Kind: history.Acquire, Outcome: out, Call: call, Return: ret,
		Lease: lease}
}

func release(owner int, out history.Outcome, call, ret time.Duration) history.Op {
	return history.Op{Client: owner, Owner: owner, Kind: history.Release, Outcome: out, Call: call, Return: ret}
}

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

func renewed(op history.Op) history.Op { op.Renewed = true; return op }

func cancelled(op history.Op) history.Op { op.Late = 40 * ms; return op }

func TestModel_SoundHistories_AreAccepted(t *testing.T) {
	const ok, refused, unknown = history.OK, history.Refused, history.Unknown
	for name, l := range map[string]*history.Log{
		"nothing": logOf(),
		"one after other": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(1, ok, 2*ms, 3*ms),
			acquire(2, ok, 4*ms, 5*ms, 100*ms), release(2, ok, 6*ms, 7*ms)),
		"refused while held": logOf(acquire(1, ok, 0, 1*ms, 100*ms), acquire(2, refused, 2*ms, 3*ms, 100*ms),
			release(1, ok, 4*ms, 5*ms)),
		"granted while the release is under way": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(1, ok, 2*ms, 9*ms),
			acquire(2, ok, 3*ms, 4*ms, 100*ms),
			release(2, ok, 5*ms, 6*ms)),
		"unknown acquire that took it": logOf(acquire(1, unknown, 0, 5*ms, 100*ms),
			acquire(2, refused, 50*ms, 51*ms, 100*ms), acquire(3, ok, 120*ms, 121*ms, 100*ms)),
		"unknown acquire that did not": logOf(acquire(1, unknown, 0, 5*ms, 100*ms), acquire(2, ok, 6*ms, 7*ms, 100*ms)),
		"unknown acquire that took it later": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			cancelled(acquire(2, unknown, 2*ms, 3*ms, 100*ms)), release(1, ok, 30*ms, 31*ms),
			acquire(3, refused, 32*ms, 33*ms, 100*ms)),
		"unknown acquire cleared away": logOf(acquire(1, unknown, 0, 5*ms, 100*ms),
			acquire(2, refused, 6*ms, 7*ms, 100*ms), acquire(3, ok, 8*ms, 9*ms, 100*ms)),
		"unknown release that ran late": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(1, unknown, 2*ms, 5*ms),
			acquire(2, refused, 8*ms, 9*ms, 100*ms), acquire(3, ok, 10*ms, 11*ms, 100*ms)),
		"refused just before the lease is over": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			acquire(2, refused, 101*ms, 102*ms, 100*ms)),
		"a renewed hold outlives its lease": logOf(renewed(acquire(1, ok, 0, 1*ms, 100*ms)),
			acquire(2, refused, 900*ms, 901*ms, 100*ms), release(1, ok, 950*ms, 951*ms), acquire(3, ok, 960*ms, 961*ms, 100*ms)),
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
		require.NoError(t, model.Check(l), name)
	}
}

func TestModel_PlantedFaults_AreFound(t *testing.T) {
	const ok, refused, unknown = history.OK, history.Refused, history.Unknown
	for name, l := range map[string]*history.Log{
		"double grant": logOf(acquire(1, ok, 0, 1*ms, 100*ms), acquire(2, ok, 2*ms, 3*ms, 100*ms),
			release(1, ok, 4*ms, 5*ms), release(2, ok, 6*ms, 7*ms)),
		"double grant of overlapping calls": logOf(acquire(1, ok, 0, 5*ms, 100*ms), acquire(2, ok, 1*ms, 4*ms, 100*ms),
			release(1, ok, 6*ms, 7*ms), release(2, ok, 6*ms, 7*ms)),
		"granted before the release began": logOf(acquire(1, ok, 0, 1*ms, 100*ms), acquire(2, ok, 2*ms, 3*ms, 100*ms),
			release(1, ok, 4*ms, 5*ms)),
		"released by one who holds nothing": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(2, ok, 2*ms, 3*ms)),
		"granted under a renewed hold": logOf(renewed(acquire(1, ok, 0, 1*ms, 100*ms)),
			acquire(2, ok, 500*ms, 501*ms, 100*ms), release(1, ok, 900*ms, 901*ms)),
		"refused when it was free": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(1, ok, 2*ms, 3*ms),
			acquire(2, refused, 4*ms, 5*ms, 100*ms)),
		"refused long after a cancelled acquire may have been granted": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			cancelled(acquire(2, unknown, 2*ms, 3*ms, 100*ms)),
			release(1, ok, 30*ms, 31*ms), acquire(3, refused, 170*ms, 171*ms, 100*ms)),
		"refused long after the lease": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			acquire(2, refused, 150*ms, 151*ms, 100*ms)),
		"left behind for longer than its lease": logOf(acquire(1, unknown, 0, 5*ms, 100*ms),
			acquire(2, refused, 150*ms, 151*ms, 100*ms)),
		"granted, released, and refused as held": logOf(acquire(1, ok, 0, 1*ms, 100*ms), release(1, refused, 2*ms, 3*ms)),
		"a writer with a reader": logOf(reads(1, ok, 0, 1*ms, 100*ms),
			acquire(2, ok, 2*ms, 3*ms, 100*ms), readDone(1, ok, 4*ms, 5*ms), release(2, ok, 6*ms, 7*ms)),
		"a reader with a writer": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			reads(2, ok, 2*ms, 3*ms, 100*ms), release(1, ok, 4*ms, 5*ms), readDone(2, ok, 6*ms, 7*ms)),
		"two writers": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			acquire(2, ok, 2*ms, 3*ms, 100*ms), release(1, ok, 4*ms, 5*ms), release(2, ok, 6*ms, 7*ms)),
		"a writer with the second of two readers": logOf(reads(1, ok, 0, 1*ms, 100*ms), reads(2, ok, 2*ms, 3*ms, 100*ms),
			readDone(1, ok, 4*ms, 5*ms), acquire(3, ok, 6*ms, 7*ms, 100*ms), readDone(2, ok, 8*ms, 9*ms)),
		"a writer with a reader that was a writer": logOf(acquire(1, ok, 0, 1*ms, 100*ms),
			reads(9, ok, 2*ms, 3*ms, 100*ms), release(1, ok, 4*ms, 5*ms), acquire(3, ok, 6*ms, 7*ms, 100*ms),
			readDone(9, ok, 8*ms, 9*ms)),
		"a writer before a renewed reader is through": logOf(renewed(reads(1, ok, 0, 1*ms, 100*ms)),
			acquire(2, ok, 500*ms, 501*ms, 100*ms), readDone(1, ok, 900*ms, 901*ms)),
		"a reader refused by readers": logOf(reads(1, ok, 0, 1*ms, 100*ms),
			reads(2, refused, 2*ms, 3*ms, 100*ms), readDone(1, ok, 4*ms, 5*ms)),
		"a writer refused by no owner": logOf(reads(1, ok, 0, 1*ms, 100*ms), readDone(1, ok, 2*ms, 3*ms),
			acquire(2, refused, 4*ms, 5*ms, 100*ms)),
		"a dead reader that outlives its lease": logOf(reads(1, unknown, 0, 5*ms, 100*ms),
			renewed(reads(2, ok, 6*ms, 7*ms, 100*ms)), readDone(2, ok, 200*ms, 201*ms),
			acquire(3, refused, 202*ms, 203*ms, 100*ms)),
		"released twice": logOf(reads(1, ok, 0, 1*ms, 100*ms), readDone(1, ok, 2*ms, 3*ms),
			readDone(1, ok, 4*ms, 5*ms)),
		"held, and its release refused": logOf(renewed(reads(1, ok, 0, 1*ms, 100*ms)),
			readDone(1, refused, 2*ms, 3*ms)),
	} {
		require.ErrorContains(t, model.Check(l), "not the history of a lock", name)
	}
}

func TestModel_RefusalByALateGrant_IsAcceptedForItsTime(t *testing.T) {
	for _, late := range []time.Duration{0, 50 * ms} {
		for at, possible := range map[time.Duration]bool{60 * ms: true, 140 * ms: true, 160 * ms: false} {
			l := logOf(acquire(1, history.OK, 0, ms, 100*ms), acquire(2, history.Unknown, 2*ms, 5*ms, 100*ms),
				release(1, history.OK, 20*ms, 21*ms),
				acquire(3, history.Refused, at, at+ms, 100*ms))
			m := model
			m.LateGrant = late
			require.Equal(t, possible && late > 0, m.Check(l) == nil, "%v %v", late, at)
		}
	}
}

func TestModel_GrantWhileALostHoldIsTrusted_IsFound(t *testing.T) {
	for _, trusted := range []time.Duration{90 * ms, 110 * ms} {
		l := logOf(renewed(acquire(1, history.OK, 0, ms, 100*ms)), acquire(2, history.OK, 99*ms, 100*ms, 100*ms))
		l.Lost(1, time.Now().Add(trusted-l.At(time.Now())))
		require.Equal(t, trusted > 100*ms, model.Check(l) != nil, trusted)
	}
}
