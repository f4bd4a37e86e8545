// Package pubsub carries what the server pushes: messages on channels, and invalidations of tracked keys.
//
// A [Hub] holds one subscription per channel for any number of [Subscription] values in the process, on connections
// of its own, and keeps it up: after a lost connection, a failover, a slot migration or an unsubscribe sent by the
// server it subscribes again.
//
// # What is promised
//
//   - Subscribe returns once the server has confirmed, so whatever is published after that and reaches the server's
//     connection to us is delivered, in order, to every Subscription of the channel.
//   - Redis delivers messages at most once. Whenever messages may have been missed (the subscription was down, or the
//     subscriber let its buffer of [Options.Buffer] run full: then the oldest go) the subscriber gets a [Message] with Gap set, in the place where they would
//     have been. A gap is never silent; whoever acts on messages must look at the state itself after one.
//   - After its last Subscription was closed, a channel stays subscribed for [Options].Grace, so that frequent short
//     subscriptions cost no SUBSCRIBE each.
//
// Not promised: that a message arrives at all, or that a dead connection is noticed at once (a connection that is
// silently cut takes rueidis about 2 x Dialer.KeepAlive + ConnWriteTimeout to notice, 12 s by default).
//
// # Which commands
//
// In a Cluster of Redis 7 or later it is SSUBSCRIBE and SPUBLISH, on one connection per node that serves a wanted
// channel; everywhere else SUBSCRIBE and PUBLISH on one connection. Redisson chooses by the same rule, so both sides
// hear each other. A Cluster that refuses the question to its user (PUBSUB SHARDNUMSUB, which is how one finds out) and names
// it is one of Redis 7 as well; New then logs what is missing.
//
// # Redlatch's own use
//
// One Hub serves rlock, rsemaphore and rcounter of a process. Their waiting treats messages as hints and has a timer
// beside every wake-up, so a hub that cannot subscribe makes them slower, never wrong.
package pubsub
