package rig

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// Overhear returns what is published on the channels, and on those that match the patterns, since the last look, as
// "channel payload". Scripts see no listener in a pattern. It ends with the test, or by stop.
func Overhear(t testing.TB, c rueidis.Client, channels, patterns []string) (heard func() []string, stop func()) {
	t.Helper()
	dc, cancel := c.Dedicate()
	messages, confirmed := make(chan rueidis.PubSubMessage, 1000), make(chan struct{}, 100)
	dc.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage:      func(m rueidis.PubSubMessage) { messages <- m },
		OnSubscription: func(rueidis.PubSubSubscription) { confirmed <- struct{}{} },
	})
	end := fmt.Sprintf("end of %p", messages)
	channels = append(slices.Clone(channels), end)
	require.NoError(t, dc.Do(ctx, dc.B().Subscribe().Channel(channels...).Build()).Error())
	ends := []string{end}
	if len(patterns) > 0 { // miniredis keeps the order only among those of one kind
		ends = append(ends, "pattern "+end)
		patterns = append(slices.Clone(patterns), ends[1])
		require.NoError(t, dc.Do(ctx, dc.B().Psubscribe().Pattern(patterns...).Build()).Error())
	}
	for range len(channels) + len(patterns) {
		<-confirmed
	}
	var once sync.Once
	stop = func() { once.Do(cancel) }
	t.Cleanup(stop)
	return func() (got []string) {
		t.Helper()
		for _, e := range ends {
			Must(t, c, "PUBLISH", e, "")
		}
		for left := len(ends); left > 0; {
			select {
			case m := <-messages:
				if slices.Contains(ends, m.Channel) {
					left--
				} else {
					got = append(got, m.Channel+" "+m.Message)
				}
			case <-time.After(time.Minute):
				t.Fatal("the end is not heard")
			}
		}
		return got
	}, stop
}
