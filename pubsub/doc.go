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
// it subscribes again. One Hub serves all clients of a process. They treat messages as hints and have a timer for every
// wake-up, so a hub that cannot subscribe makes them slower, never wrong.
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
// Dial returns ErrInvalidOption in these cases:
//
//   - A rueidis option can be used with no server. Dial has sent nothing then.
//   - ConnLifetime is set: when a connection's lifetime ends while a reply is awaited, rueidis sends the script again
//     by itself. Redlatch's scripts may run twice, but the second reply can be "lost" for an unlock that succeeded.
//     ReplicaOnly is refused, too, because every script writes.
//   - The server does not support an option: SelectDB, or client-side caching that the options configure.
//   - The server is older than Redis 7.0, or a sentinel while Sentinel.MasterSet is empty, or a proxy that does not
//     know HELLO (InitAddress).
//   - Only one side speaks TLS (TLSConfig).
//   - The server may evict keys ([Options.Strict]), or forget writes that it has confirmed ([Options.Durable]).
//
// A command that the server refuses, and that the clients can do without, is logged, and is in [Stats].Lacks. If the
// server has no client-side caching, or speaks only RESP2, Dial connects as with DisableCache and AlwaysRESP2. It does
// not do so if the options configure caching (ClientTrackingOptions, OnInvalidations, NewCacheStoreFn).
//
// Behind Sentinel the client asks every five seconds which server is the primary, unless
// Sentinel.TopologyRefreshInterval says otherwise. The sentinels announce a new primary only once. Without the refresh,
// a client that missed the message would stay with a primary that has become a replica.
//
// In a Cluster the hub's client observes invalidations. Elsewhere rlock has a connection of its own for them, because a
// client that observes invalidations pipelines on every connection, which makes each single call slower.
//
// # Which commands
//
// In a Cluster the commands are SSUBSCRIBE and SPUBLISH, on one connection for each node that serves a wanted channel.
// Everywhere else they are SUBSCRIBE and PUBLISH, on one connection. Redisson chooses by the same rule.
//
// With a channel on which Redisson publishes releases, the hub subscribes to a counting channel, redlatch_grant: and
// the channel's name. By it scripts distinguish subscribers of this library from Redisson's. A user without the right
// to the counting channel is subscribed without it.
//
// The errors that several packages return are in package redlatch, such as redlatch.ErrUnavailable. Compare with
// errors.Is.
//
// In the repository, docs/design.md has the protocol.
package pubsub
