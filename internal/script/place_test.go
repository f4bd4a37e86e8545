package script

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func newPlace(pool *alarms, parent context.Context, d time.Duration) *placeContext {
	return &placeContext{parent: parent, until: time.Now().Add(d), alarms: pool}
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestAPlaceEndsAtItsTimeAndWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newAlarms(0)
		x := newPlace(pool, context.Background(), time.Second)
		done := x.Done()
		time.Sleep(time.Second - 1)
		synctest.Wait()
		require.NoError(t, x.Err())
		require.False(t, ended(done))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.True(t, ended(done))
		require.ErrorIs(t, x.Err(), context.DeadlineExceeded)
		x.done()

		parent, cancel := context.WithCancel(context.Background())
		x = newPlace(pool, parent, time.Second)
		done = x.Done()
		cancel()
		synctest.Wait()
		require.True(t, ended(done))
		require.ErrorIs(t, x.Err(), context.Canceled)
		x.done()

		x = newPlace(pool, context.Background(), time.Second) // nobody asked for a channel
		time.Sleep(time.Second)
		require.ErrorIs(t, x.Err(), context.DeadlineExceeded)
		x.done()
	})
}

// An alarm that went off must not be lent again: the next call would be over before it was sent. One that did not is lent again,
// and what ends the earlier call afterwards must not end the later one.
func TestAnAlarmIsLentAgainOnlyIfItDidNotGoOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back []*alarm
		pool := newAlarms(0)
		pool.pool.New = func() any {
			if n := len(back); n > 0 {
				a := back[n-1]
				back = back[:n-1]
				return a
			}
			return newAlarm()
		}
		lent := func() *alarm { a, _ := pool.pool.Get().(*alarm); return a }

		parent, cancel := context.WithCancel(context.Background())
		defer cancel()
		x := newPlace(pool, parent, time.Second)
		x.Done()
		first := x.alarm
		x.done()
		require.Nil(t, x.alarm)

		back = append(back, first) // a pool under the race detector drops what it likes
		for lent() != first {
		}
		first.arm(context.Background(), time.Minute)
		cancel() // the end of the earlier call's parent
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, ended(first.rang), "the earlier call's end is not the later one's")
		require.True(t, first.disarm())

		parent2, cancel2 := context.WithCancel(context.Background())
		defer cancel2()
		x = newPlace(pool, parent2, time.Second)
		x.Done()
		second := x.alarm
		time.Sleep(2 * time.Second)
		synctest.Wait()
		x.done()
		require.Same(t, second, x.alarm, "it went off: it stays with its call")
		require.ErrorIs(t, x.Err(), context.DeadlineExceeded)
	})
}

// Calls that only their time can end share a channel, which may close a grain too early, and never too late.
func TestPlacesUnderAParentThatCannotEndShareADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newAlarms(64 * time.Second)
		first := newPlace(shared, context.Background(), time.Minute)
		time.Sleep(time.Second)
		second := newPlace(shared, context.Background(), time.Minute)
		require.Equal(t, first.Done(), second.Done())
		time.Sleep(time.Nanosecond)
		third := newPlace(shared, context.Background(), time.Minute)
		require.NotEqual(t, first.Done(), third.Done(), "more than a grain later")
		sooner := newPlace(shared, context.Background(), time.Second)
		require.NotEqual(t, third.Done(), sooner.Done(), "it would come too late")

		first.done()
		time.Sleep(59*time.Second - 2)
		synctest.Wait()
		require.NoError(t, second.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.True(t, ended(second.Done()))
		require.ErrorIs(t, second.Err(), context.DeadlineExceeded)
		require.NoError(t, third.Err())
		require.False(t, ended(third.Done()))
	})
}

// A hook around the client may keep the context for longer than the call. It must not be given a channel that is another call's.
func TestAPlaceThatIsOverLendsNoAlarm(t *testing.T) {
	pool := newAlarms(0)
	parent, cancel := context.WithCancel(context.Background())
	x := newPlace(pool, parent, time.Hour)
	x.Done()
	x.done()
	require.Equal(t, parent.Done(), x.Done())
	require.NoError(t, x.Err())
	cancel()
	require.ErrorIs(t, x.Err(), context.Canceled)
}

// Many calls end by their parent, by time and by their reply at once.
func TestPlacesUnderFire(t *testing.T) {
	pool := newAlarms(0)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				parent, cancel := context.WithCancel(context.Background())
				x := newPlace(pool, parent, time.Duration(i%3)*50*time.Microsecond+time.Duration(g))
				done := x.Done()
				switch i % 4 {
				case 0:
					cancel()
					<-done
				case 1:
					go cancel()
				case 2:
					<-done
				}
				if why := x.Err(); why != nil && !ended(done) {
					t.Error("an error before the channel is closed")
				}
				x.done()
				cancel()
			}
		})
	}
	wg.Wait()
}
