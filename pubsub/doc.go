// Package pubsub receives what a Redis or Valkey server pushes: messages on channels, and invalidations of tracked
// keys.
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
// All other packages need a hub: [Dial] connects and makes one, [New] makes one on a client that the program already
// has. Use it by itself for messages of your own, where you want to know what you may have missed.
//
// A [Hub] holds one subscription for each channel, shared by any number of [Subscription] values in the process. Its
// connections are its own. After a lost connection, a failover, a slot migration or an unsubscribe that the server
// sends, it subscribes again. One Hub serves all clients of a process; they treat messages as hints and have a timer
// for every wake-up, so a hub that cannot subscribe makes them slower, never wrong.
//
// # What is guaranteed
//
//   - Subscribe returns once the server has confirmed. A message that is published later, and reaches the server's
//     connection to this process, is delivered to every Subscription of the channel, in order.
//   - Wherever messages may have been missed the subscriber gets a [Message] with Gap set in their place: after the
//     subscription was down, or when the subscriber let its buffer of [Options.Buffer] messages run full and the oldest
//     were dropped. A gap is never silent. A subscriber that acts on messages must look at the state itself after one.
//   - After its last Subscription was closed a channel stays subscribed for Options.Grace, so that frequent short
//     subscriptions do not cost a SUBSCRIBE each.
//
// # What is not guaranteed
//
// Redis delivers a message at most once. A connection that is silently cut is noticed after about
// 2 x Dialer.KeepAlive + ConnWriteTimeout, 12 s by default.
//
// # Which commands
//
// In a Cluster the commands are SSUBSCRIBE and SPUBLISH, on one connection for each node that serves a wanted channel.
// Everywhere else they are SUBSCRIBE and PUBLISH, on one connection. Redisson chooses by the same rule. A channel on
// which Redisson publishes releases is subscribed to together with a second one, redlatch_grant: and its name, by which
// scripts tell Redisson's listeners from ours; without the right to that one, alone.
//
// The errors that several packages return are in package redlatch, such as redlatch.ErrUnavailable. Compare with
// errors.Is.
//
// In the repository, docs/design.md has the protocol.
package pubsub
