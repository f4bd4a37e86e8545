package counting_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	sent "github.com/redlatch/redlatch/internal/redistest/rig"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rsemaphore/counting"
	"github.com/stretchr/testify/require"
)

// model is a counting semaphore as its documentation describes it.
type model struct {
	now, ends time.Duration
	there     bool
	free      int64
}

func (m *model) settle() {
	if m.there && m.ends > 0 && m.now >= m.ends {
		*m = model{now: m.now}
	}
}

func (m *model) add(n int64) int64 {
	m.there, m.free = true, m.free+n
	return m.free
}

func TestCounting_RandomCalls_KeepToTheModel(t *testing.T) {
	t.Parallel()
	sent.OverWires(t, redistest.Sized(1, 1, 6), func(t *testing.T, srv *redistest.Server, wire rueidis.Client,
		rnd *rand.Rand, name string) {
		r, twice := newRigOn(t, wire, patient), name == "twice"
		if twice { // every verb is sent once, because none bears that
			return
		}
		began := time.Now().Truncate(time.Millisecond)
		srv.Embedded.SetTime(began)
		direct := newRig(t, srv, patient)
		direct.load(t)
		s := counting.New(r.c, "s")
		m := &model{}
		var trace []string
		unknowns := 0
		same := func(what string, want, got any, wantErr, gotErr error) {
			t.Helper()
			trace = append(trace, fmt.Sprintf("%v %s: %v %v", m.now, what, got, gotErr))
			if len(trace) > 30 {
				trace = trace[1:]
			}
			if errors.Is(gotErr, errs.ErrUnknownOutcome) { // it ran once, and the reply is lost
				unknowns++
				return
			}
			require.ErrorIs(t, gotErr, wantErr, "%v", trace)
			require.Equal(t, want, got, "%v", trace)
		}
		for range redistest.Sized(90, 110, 150) {
			n := 1 + rnd.IntN(4)
			switch op := rnd.IntN(100); {
			case op < 15:
				ttl := time.Duration(rnd.IntN(3)) * 5 * time.Second
				got, err := s.TrySetPermits(ctx, n-1, ttl)
				want := !m.there
				if want {
					m.there, m.free, m.ends = true, int64(n-1), 0
					if ttl > 0 {
						m.ends = m.now + ttl
					}
				}
				if want && errors.Is(err, errs.ErrUnknownOutcome) && direct.text(t, "GET", "s") == "(nil)" {
					*m = model{now: m.now} // the request itself was lost: the machine is busy
				}
				same("set", want, got, nil, err)
			case op < 50:
				want := errs.ErrNotAcquired
				if m.there && m.free >= int64(n) {
					m.add(-int64(n))
					want = nil
				}
				err := s.TryAcquire(ctx, n, 0)
				if want == nil && errors.Is(err, errs.ErrUnknownOutcome) &&
					direct.text(t, "GET", "s") != strconv.FormatInt(m.free, 10) {
					m.add(int64(n)) // refused as too late, since the server's clock has been moved, and that reply was lost
				}
				same("acquire", nil, nil, want, err)
				require.True(t, want == nil || err != nil, "%v", trace)
			case op < 72:
				m.add(int64(n))
				same("release", nil, nil, nil, s.Release(ctx, n))
			case op < 77:
				got, err := s.AddPermits(ctx, n)
				same("add", m.add(int64(n)), got, nil, err)
			case op < 83:
				got, err := s.AddPermits(ctx, -n)
				same("reduce", m.add(-int64(n)), got, nil, err)
			case op < 92:
				got, err := s.Available(ctx)
				same("available", m.free, got, nil, err)
			default:
				m.now += time.Duration(rnd.IntN(4000)) * time.Millisecond
			}
			srv.Embedded.SetTime(began.Add(m.now))
			m.settle()
			want := "(nil)"
			if m.there {
				want = strconv.FormatInt(m.free, 10)
			}
			require.Equal(t, want, direct.text(t, "GET", "s"), "%v", trace)
		}
		t.Logf("%d of unknown outcome", unknowns)
	})
}
