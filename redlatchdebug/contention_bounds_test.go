package redlatchdebug

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
)

func newContention() *contention {
	return &contention{waits: map[callSite]waitSum{}, holders: map[string]bool{}, looks: map[seen]*look{}}
}

// However many holders and call sites there are, the memory is bounded, and the sum stays that of all waits.
func TestContention_ManyHoldersAndCallSites_AreBounded(t *testing.T) {
	t.Parallel()
	c, n := newContention(), int64(maxSamples+1000)
	for i := range n {
		name := fmt.Sprint(i)
		c.looks[seen{"locks", name}] = &look{at: time.Now(), holder: name}
		c.add("locks", errs.Event{Name: name, Took: time.Second})
	}
	require.LessOrEqual(t, len(c.holders), maxHolders+1)
	require.LessOrEqual(t, len(c.waits), maxHolders+1)
	for i := range n {
		c.waits[callSite{stack: [maxFrames]uintptr{uintptr(i + 1)}}] = waitSum{}
		if len(c.waits) == maxSamples {
			break
		}
	}
	func() { c.add("elections", errs.Event{Name: "x", Took: time.Second}) }()
	require.Len(t, c.waits, maxSamples+1)
	require.EqualValues(t, 1, c.waits[callSite{kind: "election", holder: otherHolder}].count)
	var sum waitSum
	for _, one := range c.snapshot(nil) {
		sum = waitSum{sum.count + one.count, sum.time + one.time}
	}
	require.Equal(t, waitSum{n + 1, time.Duration(n+1) * time.Second}, sum)
}

func TestContention_LookIsOld_HolderIsUnknown(t *testing.T) {
	t.Parallel()
	c := newContention()
	for age, want := range map[time.Duration]string{time.Second / 2: "web-1", time.Minute: noHolder} {
		c.looks[seen{"locks", "x"}] = &look{at: time.Now().Add(-age), holder: "web-1"}
		before := c.snapshot(nil)
		c.add("locks", errs.Event{Name: "x", Took: time.Millisecond})
		for site := range c.snapshot(before) {
			require.Equal(t, want, site.holder)
		}
	}
}
