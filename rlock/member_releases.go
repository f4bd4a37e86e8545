package rlock

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/pubsub"
)

// memberReleases listens to the channels of a Quorum's members for one acquisition, and reports their releases.
type memberReleases struct {
	members    []*single
	onRelease  func(i int) // called when the i-th member may have been released
	ctx        context.Context
	cancel     context.CancelFunc
	receivers  sync.WaitGroup
	subscribed []bool       // by member; set when the subscription begins
	channels   atomic.Int32 // the number of confirmed subscriptions
	monitors   bool         // the monitors of the members watch the heartbeats of holders
}

func newMemberReleases(ctx context.Context, members []*single, onRelease func(i int)) *memberReleases {
	releases := &memberReleases{members: members, onRelease: onRelease, subscribed: make([]bool, len(members))}
	releases.ctx, releases.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return releases
}

// listen receives the messages of the channels to which the process is subscribed already, for example because it
// waited a moment ago. That sends nothing, and saves the rounds before and after a subscription. With subscribe, listen
// also subscribes to the other channels, and watches the heartbeats of holders. The beginning of a subscription, and
// each gap in its messages, count as a release.
func (r *memberReleases) listen(subscribe bool) {
	for i, member := range r.members {
		if subscribe && member.c.monitor != nil {
			member.c.monitor.watch(member)
			r.monitors = true
		}
		if r.subscribed[i] || member.backoff != nil { // a Spin lock has no channel
			continue
		}
		if sub, ok := member.c.session.Inner.TrySubscribe(member.channel); ok {
			r.subscribed[i] = true
			r.receivers.Go(func() { r.receive(i, sub) })
		} else if subscribe {
			r.subscribed[i] = true
			r.receivers.Go(func() {
				if sub, err := member.c.session.Hub.Subscribe(r.ctx, member.channel); err == nil {
					r.onRelease(i)
					r.receive(i, sub)
				}
			})
		}
	}
}

// receive reports each message of a member's channel as a release.
func (r *memberReleases) receive(i int, sub *pubsub.Subscription) {
	defer sub.Close()
	r.channels.Add(1)
	defer r.channels.Add(-1)
	for {
		if _, err := sub.Next(r.ctx); err != nil {
			return
		}
		r.onRelease(i)
	}
}

// stop unsubscribes, and ends the watch of heartbeats.
func (r *memberReleases) stop() {
	r.cancel()
	r.receivers.Wait()
	if !r.monitors {
		return
	}
	for _, member := range r.members {
		if member.c.monitor != nil {
			member.c.monitor.unwatch(member)
		}
	}
}
