package rlock

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/pubsub"
)

// memberReleases is how an acquisition of a Quorum hears of releases: it listens to the channels of the members.
type memberReleases struct {
	members    []*single
	onRelease  func(i int) // is called when the i-th member may have been released
	ctx        context.Context
	cancel     context.CancelFunc
	receivers  sync.WaitGroup
	subscribed []bool       // by member; also while a subscription is under way
	channels   atomic.Int32 // that are listened to
	monitors   bool         // the heartbeats of holders are watched
}

func newMemberReleases(ctx context.Context, members []*single, onRelease func(i int)) *memberReleases {
	r := &memberReleases{members: members, onRelease: onRelease, subscribed: make([]bool, len(members))}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// listen listens to the channels to which the process is subscribed already, as it is if it waited a moment ago. That
// sends nothing, and saves the rounds before and after a subscription. With subscribe, listen subscribes to the other
// channels, and watches the heartbeats of holders. A subscription that begins, and each gap in it, may stand for a
// release.
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

// stop ends the listening.
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
