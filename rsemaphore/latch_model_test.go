package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	rigs "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rsemaphore"
)

// forgetful runs everything and loses the reply where lose says so: the caller sees a closed connection.
type forgetful struct {
	rueidis.Client
	dead rueidis.Client // closed: its only use is its error
	lose func() bool
}

func newForgetful(t testing.TB, s *redistest.Server, lose func() bool) *forgetful {
	dead := redistest.NoError(rueidis.NewClient(s.Option()))(t)
	dead.Close()
	return &forgetful{s.Client(t), dead, lose}
}

func (c *forgetful) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	r := c.Client.Do(ctx, cmd)
	if c.lose() {
		return c.dead.Do(ctx, c.dead.B().Ping().Build())
	}
	return r
}

// walking are options of a client that asks often and waits long.
var walking = rsemaphore.Options{CallTimeout: 10 * time.Second, PollCap: 10 * time.Millisecond}

// latchModel is a latch as its documentation describes it.
type latchModel struct {
	now     time.Duration // since the test began
	count   int64         // 0: open
	ends    time.Duration // of the TTL; 0: none
	ttl     time.Duration
	forget  time.Duration // when it is forgotten that it expired; 0: it has not
	counted map[string]bool
}

const latchRemembered = 100 * time.Second // 10 call timeouts

func (m *latchModel) settle() {
	if m.count > 0 && m.ends > 0 && m.now >= m.ends {
		m.count, m.forget, m.ends = 0, m.ends+max(m.ttl, latchRemembered), 0
	}
	if m.forget > 0 && m.now >= m.forget {
		m.forget = 0
	}
}

func (m *latchModel) set(count int64, ttl time.Duration) bool {
	if m.count > 0 {
		return false
	}
	m.count, m.ttl, m.ends, m.forget, m.counted = count, ttl, 0, 0, map[string]bool{}
	if ttl > 0 {
		m.ends = m.now + ttl
	}
	return true
}

func (m *latchModel) down(who string) (int64, error) {
	switch {
	case m.forget > 0:
		return 0, rsemaphore.ErrLatchExpired
	case m.count == 0:
		return 0, nil
	case who == "" || !m.counted[who]:
		m.count--
		if who != "" {
			m.counted[who] = true
		}
		if m.count == 0 {
			m.ends = 0
		}
	}
	return m.count, nil
}

func (m *latchModel) look() (int64, error) {
	if m.forget > 0 {
		return 0, rsemaphore.ErrLatchExpired
	}
	return m.count, nil
}

func (m *latchModel) del() bool {
	was := m.count > 0
	m.count, m.ends, m.forget = 0, 0, 0
	return was
}

func TestLatch_RandomCalls_KeepToTheModel(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	rigs.OverWires(t, redistest.Sized(1, 1, 6), func(t *testing.T, srv *redistest.Server, wire rueidis.Client,
		rnd *rand.Rand, name string) {
		r, twice := newRigOn(t, srv, wire, walking), name == "twice"
		began := time.Now().Truncate(time.Millisecond)
		srv.Embedded.SetTime(began)
		direct := newRig(t, srv, patient)
		direct.load(t, "latch_*")
		l := r.c.CountDownLatch("l")
		m := &latchModel{}
		var trace []string
		same := func(what string, want, got any, wantErr, gotErr error) {
			t.Helper()
			trace = append(trace, fmt.Sprintf("%v %s: %v %v", m.now, what, got, gotErr))
			if len(trace) > 30 {
				trace = trace[1:]
			}
			require.ErrorIs(t, gotErr, wantErr, "%v", trace)
			require.Equal(t, want, got, "%v", trace)
		}
		for range redistest.Sized(90, 110, 150) {
			who := string(rune('a' + rnd.IntN(5)))
			switch op := rnd.IntN(100); {
			case op < 20:
				count, ttl := 1+rnd.Int64N(5), time.Duration(0)
				if rnd.IntN(3) > 0 {
					ttl = time.Duration(1+rnd.IntN(20)) * time.Second
				}
				got, err := l.TrySetCount(ctx, count, ttl)
				same("set", m.set(count, ttl), got, nil, err)
			case op < 30 && !twice: // which is sent once
				got, err := l.CountDown(ctx)
				want, wantErr := m.down("")
				if errors.Is(err, errs.ErrUnknownOutcome) { // it ran, and the reply is lost
					got, err = want, wantErr
				}
				same("down", want, got, wantErr, err)
			case op < 65:
				got, err := l.CountDownBy(ctx, who)
				want, wantErr := m.down(who)
				same("down by "+who, want, got, wantErr, err)
			case op < 75:
				got, err := l.Count(ctx)
				want, wantErr := m.look()
				same("count", want, got, wantErr, err)
			case op < 82:
				wctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				if m.count > 0 {
					cancel() // it would wait
				}
				err := l.Await(wctx)
				cancel()
				_, wantErr := m.look()
				if m.count > 0 {
					wantErr = context.Canceled
				}
				same("await", nil, nil, wantErr, err)
				require.Equal(t, wantErr == nil, err == nil, "%v", trace)
			case op < 85:
				got, err := l.Delete(ctx)
				same("delete", m.del(), got, nil, err)
			case op < 88 && m.count > 0: // Redisson's countDown
				if direct.number(t, "DECR", "l") <= 0 {
					direct.must(t, "DEL", "l")
				}
				_, err := m.down("")
				got, gotErr := l.Count(ctx) // somebody looks
				same("Java counts down", m.count, got, err, gotErr)
			case op < 90 && m.count == 0: // Redisson's trySetCount
				direct.must(t, "SET", "l", "3")
				m.set(3, 0)
				got, err := l.Count(ctx) // somebody looks
				same("Java sets", m.count, got, nil, err)
			case op < 98:
				m.now += time.Duration(rnd.IntN(6000)) * time.Millisecond
			default:
				m.now += time.Duration(rnd.IntN(150)) * time.Second
			}
			srv.Embedded.SetTime(began.Add(m.now))
			m.settle()
			want := "(nil)"
			if m.count > 0 {
				want = strconv.FormatInt(m.count, 10)
			}
			require.Equal(t, want, direct.text(t, "GET", "l"), "%v", trace)
			if direct.number(t, "EXISTS", "{l}:latch") == 1 {
				require.Positive(t, direct.number(t, "PTTL", "{l}:latch"), "%v", trace)
			}
		}
	})
}
