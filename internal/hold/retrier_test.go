package hold_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

// releases tells what a retrier does with them.
type releases struct {
	mu       sync.Mutex
	at       []time.Time
	fail     bool
	slow     time.Duration
	now, top int // under way
}

var errDown = errors.New("down")

func (d *releases) release(ctx context.Context) error {
	d.mu.Lock()
	d.at = append(d.at, time.Now())
	d.now++
	d.top = max(d.top, d.now)
	slow := d.slow
	d.mu.Unlock()
	script.Pause(ctx, slow)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now--
	if d.fail {
		return errDown
	}
	return nil
}

func (d *releases) set(fail bool, slow time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.slow = fail, slow
}

func (d *releases) tries() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.at)
}

// most is how many tries were under way at once.
func (d *releases) most() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.top
}

// retrying tests a retrier in a bubble.
func retrying(t *testing.T, fn func(t *testing.T, r *hold.Retrier)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := hold.NewRetrier()
		defer r.Stop()
		fn(t, r)
	})
}

func pending(r *hold.Retrier) int {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return len(r.Drain(ctx))
}

func TestRetrier_Pending_IsTriedUntilAnswered(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		require.Zero(t, r.Drain(context.Background()), "nothing is pending")
		d := &releases{fail: true}
		r.Add(&hold.Pending{Release: d.release, Until: time.Now().Add(time.Hour)})
		time.Sleep(time.Minute)
		n := len(d.tries())
		require.Greater(t, n, 60)
		require.Less(t, n, 60*20, "with pauses")
		require.Equal(t, 1, pending(r))
		d.set(false, 0)
		require.Zero(t, r.Drain(context.Background()))
		tries := d.tries()
		require.Len(t, tries, n+1)
		time.Sleep(time.Hour)
		require.Len(t, d.tries(), n+1)
	})
}

func TestRetrier_AnswerBeforeAfter_IsNotFinal(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		d := &releases{}
		start := time.Now()
		r.Add(&hold.Pending{Release: d.release, After: start.Add(5 * time.Second), Until: start.Add(time.Hour)})
		synctest.Wait()
		require.Len(t, d.tries(), 1, "the first try is made at once")
		require.Equal(t, 1, pending(r))
		require.Zero(t, r.Drain(context.Background()))
		tries := d.tries()
		require.Equal(t, start, tries[0])
		require.Equal(t, start.Add(5*time.Second), tries[len(tries)-1], "the last one when nothing can come any more")
		require.Less(t, tries[1].Sub(start), 3*time.Millisecond, "what was on its way arrives in a moment, mostly")
		require.Len(t, tries, 8, "so few that those of a thousand calls that were cancelled are no load")
	})
}

// A late reply has a release added for an owner that has one.
func TestRetrier_OneOwner_HasOnePendingRelease(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		d := &releases{}
		start := time.Now()
		for _, after := range []time.Duration{time.Second, 0, 3 * time.Second, 2 * time.Second} {
			r.Add(&hold.Pending{Owner: "a", Release: d.release, After: start.Add(after), Until: start.Add(time.Minute)})
			require.Equal(t, 1, r.Count())
		}
		require.Zero(t, r.Drain(context.Background()))
		tries := d.tries()
		require.Equal(t, start.Add(3*time.Second), tries[len(tries)-1])
		r.Add(&hold.Pending{Owner: "a", Release: d.release, Until: start.Add(time.Minute)})
		require.Zero(t, r.Drain(context.Background()))
		require.Len(t, d.tries(), len(tries)+1, "another, after the first was over")
	})
}

// A request that the server refuses after an instant may run for the rest of that instant's millisecond. A release that
// is sent in it, and answered, may have come before such a request.
func TestReleaseLater_LastMillisecondOver_IsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &hold.Keeper{Session: &session.Session{}, Retrier: hold.NewRetrier()}
		defer k.Retrier.Stop()
		d := &releases{}
		notAfter := time.Now()
		k.ReleaseLater("x", notAfter, time.Hour, d.release)
		require.Zero(t, k.Retrier.Drain(context.Background()))
		tries := d.tries()
		require.Equal(t, notAfter, tries[0], "the first try is made at once")
		require.False(t, tries[len(tries)-1].Before(notAfter.Add(time.Millisecond)),
			"the last one when no such request can run any more")
		k.Retrier.Stop()
	})
}

// The release runs on the server, then the late acquire does, and only then is the release answered: the answer says
// nothing of the acquire, though it came after After.
func TestRetrier_SentBeforeAfter_IsNotFinal(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		d := &releases{slow: 7 * time.Second}
		start := time.Now()
		r.Add(&hold.Pending{Release: d.release, After: start.Add(5 * time.Second), Until: start.Add(time.Hour)})
		require.Zero(t, r.Drain(context.Background()))
		require.Equal(t, []time.Time{start, start.Add(7 * time.Second)}, d.tries())
	})
}

// The retrier waits for a release that is to be tried again in a minute. The other release is due earlier after its
// first try has failed.
func TestRetrier_OneDueLater_DelaysNoOther(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		start := time.Now()
		later, d := &releases{}, &releases{fail: true}
		r.Add(&hold.Pending{Release: later.release, After: start.Add(time.Minute), Until: start.Add(time.Hour)})
		time.Sleep(time.Second)
		r.Add(&hold.Pending{Release: d.release, Until: start.Add(time.Hour)})
		time.Sleep(time.Second)
		require.Greater(t, len(d.tries()), 3)
		d.set(false, 0)
		time.Sleep(time.Second)
		require.Equal(t, 1, pending(r), "answered")
		require.Zero(t, r.Drain(context.Background()))
		tries := later.tries()
		require.Equal(t, start, tries[0])
		require.Equal(t, start.Add(time.Minute), tries[len(tries)-1])
	})
}

// The same with as many calls under way as there may be except for one, none of which is answered.
func TestRetrier_OneCallIsFree_DueReleaseIsTried(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		start := time.Now()
		later, hung, d := &releases{}, &releases{slow: 30 * time.Second}, &releases{}
		r.Add(&hold.Pending{Release: later.release, After: start.Add(time.Minute), Until: start.Add(time.Hour)})
		time.Sleep(time.Second)
		for range hold.MaxRetryCalls - 1 {
			r.Add(&hold.Pending{Release: hung.release, Until: start.Add(time.Hour)})
		}
		synctest.Wait()
		require.Len(t, hung.tries(), hold.MaxRetryCalls-1)
		for range 3 {
			r.Add(&hold.Pending{Release: d.release, Until: start.Add(time.Hour)})
		}
		synctest.Wait()
		require.Equal(t, []time.Time{start.Add(time.Second), start.Add(time.Second), start.Add(time.Second)}, d.tries())
		require.LessOrEqual(t, r.Calls(), hold.MaxRetryCalls)
	})
}

func TestRetrier_LeaseOver_GivesUp(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		d := &releases{fail: true}
		until := time.Now().Add(10 * time.Second)
		r.Add(&hold.Pending{Release: d.release, Until: until})
		r.Add(&hold.Pending{Release: d.release, After: time.Now().Add(time.Hour), Until: until})
		require.Zero(t, r.Drain(context.Background()))
		require.False(t, time.Now().Before(until))
		require.Less(t, time.Since(until), time.Second)
		for _, at := range d.tries() {
			require.False(t, at.After(until))
		}
	})
}

// A leftover hold keeps others out for as long as its release is pending: with more of them than can be tried, the
// newest must not be served before the first.
func TestRetrier_Many_AreTriedInOrder(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		const many = 5000
		var mu sync.Mutex
		var tried []int
		for i := range many { // ten times as fast as they can be tried
			r.Add(&hold.Pending{Until: time.Now().Add(time.Hour), Release: func(context.Context) error {
				mu.Lock()
				tried = append(tried, i)
				mu.Unlock()
				time.Sleep(hold.MaxRetryCalls * 10 * time.Millisecond)
				return nil
			}})
			time.Sleep(time.Millisecond)
			require.LessOrEqual(t, r.Calls(), hold.MaxRetryCalls)
		}
		require.Greater(t, pending(r), many/2)
		require.Zero(t, r.Drain(context.Background()))
		synctest.Wait()
		require.Zero(t, r.Calls(), "an idle retrier makes none")
		require.Len(t, tried, many)
		for at, i := range tried {
			require.InDelta(t, at, i, hold.MaxRetryCalls)
		}
	})
}

// crowd are releases that can be made together, by calls that take a while.
type crowd struct {
	releases
	together int // that one call was made for, at most
}

func (d *crowd) pending(owner string) *hold.Pending {
	now := time.Now()
	return &hold.Pending{Name: owner, Owner: owner, BatchKey: "these", Until: now.Add(time.Hour), Release: d.release,
		ReleaseAll: func(ctx context.Context, all []*hold.Holding) error {
			d.mu.Lock()
			d.together = max(d.together, len(all))
			d.mu.Unlock()
			return d.release(ctx)
		}}
}

// Callers leave faster than a call for each could be made, however many calls are under way.
func TestRetrier_Batch_KeepsUpWithLeavers(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		d := &crowd{releases: releases{slow: 10 * time.Millisecond}}
		most := 0
		for n := range 5000 {
			r.Add(d.pending(fmt.Sprint(n)))
			time.Sleep(100 * time.Microsecond)
			synctest.Wait() // a call may end in this very instant
			most = max(most, r.Count())
			require.Equal(t, r.Count(), len(r.All()))
		}
		require.Equal(t, r.Count(), pending(r), "those that wait for a call are pending, too")
		require.LessOrEqual(t, most, 202, "what came during one call, and during the one before")
		require.Equal(t, 1, d.most(), "calls at a time")
		require.Zero(t, r.Drain(context.Background()))
		require.LessOrEqual(t, len(d.tries()), 52)
		require.LessOrEqual(t, d.together, 101)
	})
}

// However many wait, a call is bounded, and none is left out.
func TestRetrier_Batch_IsBounded(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		d, failing := &crowd{releases: releases{slow: time.Second}}, &releases{fail: true}
		r.Add(&hold.Pending{Name: "another", Release: failing.release, Until: time.Now().Add(time.Hour)})
		for n := range 1001 {
			r.Add(d.pending(fmt.Sprint(n)))
		}
		synctest.Wait()
		require.Equal(t, 1002, r.Count())
		time.Sleep(time.Minute)
		require.Equal(t, 1, r.Count(), "the one that cannot be made with these")
		require.LessOrEqual(t, d.together, 256)
		require.LessOrEqual(t, len(d.tries()), 6)
	})
}

// Of those that can be made together one is kicked: something is taken by nobody until it has been sent.
func TestKick_Batch_WaitsForNoOther(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		d := &crowd{releases: releases{slow: time.Minute}}
		for _, owner := range []string{"a", "b", "c"} {
			r.Add(d.pending(owner))
			synctest.Wait()
		}
		require.Len(t, d.tries(), 1, "b and c wait for the call under way")
		d.set(false, time.Second)
		r.Kick("c")
		synctest.Wait()
		require.Len(t, d.tries(), 2)
		require.Equal(t, 2, d.most())
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, pending(r), "b went with it")
		require.Zero(t, r.Drain(context.Background()))
	})
}

func TestKick_ManyPending_GoesFirst(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		d, kicked := &releases{slow: 10 * time.Millisecond}, &releases{}
		for range 10000 {
			r.Add(&hold.Pending{Release: d.release, Until: time.Now().Add(time.Hour)})
		}
		time.Sleep(time.Millisecond)
		r.Add(&hold.Pending{Owner: "a", Release: kicked.release, Until: time.Now().Add(time.Hour)})
		synctest.Wait()
		require.Empty(t, kicked.tries())
		r.Kick("a")
		time.Sleep(10*time.Millisecond + 1)
		synctest.Wait()
		require.Len(t, kicked.tries(), 1, "with the next call that is free")
		require.Zero(t, r.Drain(context.Background()))
	})
}

func TestAwait_FirstTry_ReturnsWithItOrInTime(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		await := func(owner string) time.Duration {
			began := time.Now()
			r.Await(owner, 10*time.Millisecond)
			return time.Since(began)
		}
		require.Zero(t, await("nobody's"))
		d := &crowd{releases: releases{slow: 3 * time.Millisecond, fail: true}}
		r.Add(d.pending("a"))
		require.Equal(t, 3*time.Millisecond, await("a"), "whatever comes of it")
		require.Zero(t, await("a"), "it was tried")
		d.set(false, time.Second)
		p := d.pending("b")
		p.After = time.Now().Add(time.Minute)
		r.Add(p)
		require.Equal(t, 10*time.Millisecond, await("b"))
		require.Zero(t, r.Drain(context.Background()))
	})
}

// The release that is under way may have run before the grant, and would be the last.
func TestKick_DuringTheLastRelease_FollowsIt(t *testing.T) {
	retrying(t, func(t *testing.T, r *hold.Retrier) {
		d := &releases{slow: time.Second}
		r.Add(&hold.Pending{Owner: "a", Release: d.release, Until: time.Now().Add(time.Hour)})
		synctest.Wait()
		r.Kick("a")
		require.Zero(t, r.Drain(context.Background()))
		require.Len(t, d.tries(), 2)
		require.Equal(t, 1, d.most(), "and not at the same time")
	})
}
