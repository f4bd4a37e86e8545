// Package election elects one of several processes as the leader, and tells the others who it is.
//
//	scheduler := elections.Election("scheduler")
//	err := scheduler.Run(ctx, "10.0.0.7:8080", func(ctx context.Context, l *election.Leadership) error {
//		return schedule(ctx, l.Token()) // ctx ends with the leadership
//	})
//
//	leader, err := scheduler.Leader(ctx)   // in any process: who leads, and where to reach it
//	leaders, err := scheduler.Observe(ctx) // and a channel of all who follow
//
// [Election.Run] is the loop that most programs want; [Election.Campaign] and [Leadership.Resign] are its parts. [Election.Leader] and
// [Election.Observe] are for everybody else.
//
// An election is a Fenced lock of package rlock with Options.Liveness. The leader is its holder, and the candidates are its
// waiters: they queue, and the first of them follows. What a candidate says of itself, its value, is the label of its owner.
//
// # What is guaranteed
//
//   - At most one leader acts at a time, among leaders that stop when their Context ends, or at Until. This is the promise of a
//     lock; it holds under the conditions that package rlock names.
//   - Tokens grow from leader to leader. A resource that refuses a smaller token than it has seen refuses every former leader.
//   - A leader's value is never shown with the token of another.
//   - A leader that resigned, or lost, is never shown after the server knows that it leads no more.
//   - An observer that misses a message sees the state when it looks next, after PollCap at the latest.
//   - A candidate leaves nothing behind when its ctx ends. A leader that dies leaves keys that expire.
//
// # What is not guaranteed
//
//   - Two leaders may act at once unless tokens are checked. A process can be suspended between its last look at its Context and
//     the act itself, and acts when it runs again. A failover may forget a leader whose lock was not replicated. FLUSHALL, DEL,
//     eviction and a step of the server's clock let the next one in early. In each case the former leader learns of it later
//     than the next one begins.
//   - There may be no leader for a while. If a leader resigns, the next candidate leads at once. If it crashes or is cut off, a
//     waiting candidate takes over when it has seen no heartbeat for three Heartbeats: 3 to 4 s after the crash by default. If no
//     candidate waits, the lock of a crashed leader lasts until the end of its lease (WatchdogTimeout).
//   - Leader and Observe say who led when the server was asked. That leader may be gone when the answer arrives. Who acts on
//     being the leader goes by its own Leadership.
//   - An observer is not told of every leader: one that follows and goes between two looks is passed over.
//   - A leader that crashed is shown until its lock is taken over, or its lease is over.
//   - A leader whose announcement was deleted, or was lost in a failover, is not shown until it announces itself again, which it
//     does every third of WatchdogTimeout. It leads meanwhile.
//
// # How it is announced
//
// A lock that is handed over has its new holder before that holder has its token. So the lock's hash and the last token, read
// together, could show a leader with the token of the one before. The leader itself therefore writes both, token and owner, into
// one key, as soon as it knows its token. A reader asks for this key first, and then whether the lock still has that owner.
// Owners are never used again, so if it has, the leader in question led with that token when the second question was answered.
//
//	leader A                    server                        leader B             an observer
//	                            held by A, announced A 17
//	resigns --------------->    hands the lock over to B                           looks: A 17, no holder: nobody
//	takes back A 17 ------->    nobody announced, message                          looks: nobody
//	                            mints token 18 <------------- confirms the grant
//	                            announced B 18, message <---- announces itself     looks: B 18, the holder
//
// The messages only say that something changed. These are the orders in which calls can pass each other:
//
//   - B announces itself before A takes its own back: the call of A finds another announcement, and leaves it.
//   - A is slow to announce itself, loses the lock, and B announces itself: the call of A has the smaller token, and is refused.
//   - A has announced itself again when it resigns, and that call arrives after all others: the announcement names an owner who
//     holds nothing. Readers see nobody, and it expires.
//
// # Keys
//
// P is Options.KeyPrefix. A name with braces of its own is not put into braces.
//
//	P<name> and what belongs to it      the Fenced lock: see package rlock. A Fenced lock of that name of another client excludes
//	                                    the election, and is excluded by it; its holder is never shown as the leader
//	redlatch_leader:{P<name>}           string, "<token> <owner>", the leader's announcement; expires WatchdogTimeout after the
//	                                    last renewal of it
//	redlatch_leader:{P<name>}           channel of the observers, one message when somebody has announced itself or resigned
//
// # Cost
//
// To be elected takes what a Fenced lock takes, and one call to announce it. A leader announces itself again every third of
// WatchdogTimeout. To resign takes two calls. Leader takes two reads, or one if nobody is announced. An observer makes the same
// reads after each message and each PollCap.
package election
