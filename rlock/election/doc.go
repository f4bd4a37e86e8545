// Package election elects one of several processes as the leader, and shows all processes which one leads.
//
//	scheduler := elections.Election("scheduler")
//	err := scheduler.Run(ctx, "10.0.0.7:8080", func(ctx context.Context, l *election.Leadership) error {
//		return schedule(ctx, l.Token()) // ctx ends with the leadership
//	})
//
//	leader, err := scheduler.Leader(ctx)   // in any process: the leader, and its address
//	for leader, err := range scheduler.Observe(ctx) { … } // and every later leader
//
// [Election.Run] is the loop that most programs want; [Election.Campaign] and [Leadership.Resign] are its parts. An
// election is a Fenced lock of package rlock with Options.Liveness: the leader is its holder, the candidates are its
// waiters, and a candidate's value is the label of its owner.
//
// [Client.Shards] divides n shards of work among the live workers. Each shard is a lock of its own, with growing
// tokens. [Shards.Run] calls a function for each shard of its process, and [Shards.Slot] acquires any free shard.
//
// # What is guaranteed
//
//   - At most one leader acts at a time, among leaders that stop when their Context ends, or at Until, under the
//     conditions of package rlock.
//   - Tokens grow from leader to leader. A resource that refuses a smaller token than it has seen refuses every former
//     leader.
//   - A leader's value is never shown with the token of another leader.
//   - A leader that resigned or lost its leadership is not shown once the server knows of it.
//   - An observer that misses a message sees the state after PollCap at the latest.
//   - A candidate leaves nothing behind when its ctx ends. A leader that dies leaves keys that expire.
//   - A value that [Leadership.Proclaim] has changed is not shown again.
//   - At most one worker acts for a shard at a time, under the conditions of the first two promises.
//   - Every shard has a worker, and no worker has two shards more than another, as soon as nothing has changed for ten
//     heartbeats and the functions of all moving shards have returned. The number of moved shards is minimal.
//
// # What is not guaranteed
//
//   - Two leaders may act at once unless tokens are checked: a suspended process acts when it runs again, and failover,
//     FLUSHALL, DEL, eviction or a step of the server's clock may let the next leader in early.
//   - There may be a gap without a leader. If a leader resigns, the next candidate leads at once. If it crashes or is
//     cut off, a waiting candidate leads after three missed heartbeats, 3 to 4 s by default. If no candidate waits, the
//     lock lasts until the end of its lease (WatchdogTimeout), and the crashed leader is shown until then.
//   - Leader and Observe return the leader at the time of the server's reply. Leaders must check their own context, not
//     Leader.
//   - A leadership does not survive a restart of its process, even under the same name, because the former process may
//     still run. The new process campaigns, and gets a greater token.
//   - A shard has no worker for a while after its worker left, crashed, or was cut off. A shard that should move stays
//     where it is until its function returns. A worker whose heartbeats are late for three intervals counts as absent,
//     and its shards move.
//   - An observer may miss a leader that came and went between two requests.
//   - A leader whose announcement was deleted, or lost in a failover, leads on but is not shown until it announces
//     itself again, every third of WatchdogTimeout.
//
// # Cost
//
// An election takes the calls of a Fenced lock, and one call for the announcement, which is repeated every third of
// WatchdogTimeout. A worker sends its shards once in a Heartbeat. A resignation takes two calls. Leader takes two
// reads, or one without an announcement; so does an observer after each message and each PollCap.
//
// The errors are those of a Fenced lock. Package redlatch declares them, such as redlatch.ErrLost.
//
// In the repository, docs/design has the keys and the protocol.
package election
