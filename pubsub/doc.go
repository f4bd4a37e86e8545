// Package pubsub receives the messages that a Redis or Valkey server pushes: messages on channels, and invalidations of
// tracked keys.
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
// All other packages need a hub: [Dial] connects and makes a hub, [New] makes a hub on a client that the program
// already has. A program can use a hub for messages of its own, too, if it must know where it may have missed messages.
//
// A [Hub] holds one subscription for each channel, shared by any number of [Subscription] values in the process. It has
// its own connections. After a lost connection, a failover, a slot migration or an unsubscribe that the server sends,
// it subscribes again. One Hub serves all clients of a process. The clients treat messages as hints and have a timer
// for every wake-up, so a hub that cannot subscribe makes them slower, never wrong.
//
// # What is guaranteed
//
//   - Subscribe returns once the server has confirmed. A message that is published later, and reaches the server's
//     connection to this process, is delivered to every Subscription of the channel, in order.
//   - Wherever messages may have been missed the subscriber receives a [Message] with Gap set in their place: after the
//     subscription was down, or when the subscriber let its buffer of [Options.Buffer] messages run full and the oldest
//     were dropped. A gap is never silent. A subscriber that acts on messages must read the state itself after a gap.
//   - After its last Subscription was closed a channel stays subscribed for Options.Grace, so that frequent short
//     subscriptions do not cost a SUBSCRIBE each.
//
// # What is not guaranteed
//
// Redis delivers a message at most once. A connection that is silently cut is noticed after about 2 x Dialer.KeepAlive
// + ConnWriteTimeout, 12 s by default.
//
// # Connecting
//
// Dial returns ErrInvalidOption, which says the reason, if
//
//   - a rueidis option cannot be used: ConnLifetime, because rueidis would send a script again by itself, and the
//     second reply can be "lost" for an unlock that succeeded; ReplicaOnly, because every script writes;
//   - the server does not support an option, is older than Redis 7.0, is a sentinel while Sentinel.MasterSet is empty,
//     or only one side speaks TLS;
//   - the server may evict keys ([Options.Strict]), or forget writes that it has confirmed ([Options.Durable]).
//
// A command that the server refuses, and that the clients can do without, is logged, and is in [Stats].Lacks.
//
// Behind Sentinel the client asks every five seconds which server is the primary, unless
// Sentinel.TopologyRefreshInterval is set. The sentinels announce a new primary only once, so a client that missed the
// message would otherwise stay with a server that has become a replica. In a Cluster the hub uses SSUBSCRIBE and
// SPUBLISH, on one connection for each node that serves a wanted channel, and elsewhere SUBSCRIBE and PUBLISH, on one
// connection. Redisson chooses by the same rule.
//
// The errors that several packages return are in package redlatch, such as redlatch.ErrUnavailable. Compare with
// errors.Is.
//
// In the repository, docs/design/protocols.md has the protocol.
package pubsub
