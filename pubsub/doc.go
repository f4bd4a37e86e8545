// Package pubsub receives what a Redis or Valkey server pushes: messages on channels, and invalidations of tracked keys.
//
//	sub, err := hub.Subscribe(ctx, "prices") // confirmed by the server
//	defer sub.Close()
//	for {
//		m, err := sub.Next(ctx)
//		if err != nil {
//			return err
//		}
//		if m.Gap {
//			reload() // messages may have been missed here
//		}
//	}
//
// All other packages need a hub: [Dial] connects and makes one, [New] makes one on a client that the program has already. Use it
// by itself for messages of your own, where you want to know what you may have missed.
//
// A [Hub] holds one subscription for each channel, shared by any number of [Subscription] values in the process. Its
// connections are its own. It keeps its subscriptions up: after a lost connection, a failover, a slot migration or an
// unsubscribe that the server sends, it subscribes again.
//
// # What is promised
//
//   - Subscribe returns once the server has confirmed. A message that is published later, and reaches the server's connection
//     to this process, is delivered to every Subscription of the channel, in order.
//   - Redis delivers a message at most once. Wherever messages may have been missed the subscriber gets a [Message] with Gap
//     set, in the place where they would have been: the subscription was down, or the subscriber let its buffer of
//     [Options.Buffer] messages run full, and then the oldest were dropped. A gap is never silent. A
//     subscriber that acts on messages must look at the state itself after one.
//   - After its last Subscription was closed a channel stays subscribed for Options.Grace, so that frequent short
//     subscriptions do not cost a SUBSCRIBE each.
//
// It is not promised that a message arrives at all, nor that a dead connection is noticed at once: rueidis notices a
// connection that is silently cut after about 2 x Dialer.KeepAlive + ConnWriteTimeout, 12 s by default.
//
// # Which commands
//
// In a Cluster the commands are SSUBSCRIBE and SPUBLISH, on one connection for each node that serves a
// wanted channel. Everywhere else they are SUBSCRIBE and PUBLISH, on one connection. Redisson chooses by the same rule, so both
// sides hear each other.
//
// A channel on which Redisson publishes releases of locks or permits is subscribed to in one command with a second channel,
// redlatch_grant: and its name, by which scripts tell that the listener is none of Redisson's. If the user has no right to that one, the
// channel is subscribed to alone.
//
// # How a subscription is kept
//
// A topic is one channel in this process: what is wanted of it, and whether the server has confirmed it on the present
// connection. A link is one connection for subscriptions, and the goroutine that brings what is subscribed on it into line
// with what is wanted.
//
//	            Subscribe               confirmed
//	(no topic) -----------> [waiting] -------------> [live] <----------+
//	                           |  ^                     |              | confirmed: a gap
//	         refused, if it    |  +--- again -----------+--- down -----+
//	         was never live    v       SUBSCRIBE             a gap
//	                        (no topic)
//
// The rules are:
//
//  1. Subscribe makes the topic and wakes its link. The link sends SUBSCRIBE, one command for each channel. Every call that
//     waits for this topic gets the server's next word on it: confirmed or refused.
//  2. When the connection ends, every topic on it is down: a gap. When it is confirmed anew: another gap. Each of them wakes
//     every waiter.
//  3. In a Cluster with sharded channels there is one link for each primary. MOVED leads a topic to its link. Where nodes
//     change places the link asks the node for its role after it has subscribed, and leaves a replica. Subscribers at a
//     replica hear what is published, but no script counts them. A primary that becomes a replica later takes its
//     subscriptions away or ends the connection.
//  4. After its last Subscription was closed a topic stays for the grace period. A channel that is wanted again after that is
//     another topic, with a SUBSCRIBE and a confirmation of its own, even if the link has not sent UNSUBSCRIBE for the first.
//  5. The hub's context ends with the hub. After that the clients refuse new calls, and calls that wait end, because their
//     contexts are children of it.
//
// # Use by the other packages
//
// One Hub serves all clients of a process. They treat messages as hints and have a timer beside every wake-up, so a hub that
// cannot subscribe makes them slower, never wrong.
package pubsub
