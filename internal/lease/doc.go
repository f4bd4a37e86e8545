// Package lease is the watchdog: it renews leases, and tells their holders when they are over.
//
// # Deadlines
//
// A lease's deadline is
//
//	(monotonic time before the request that confirmed it was sent) + lease - Margin(lease)
//
// It moves only when the server confirms a renewal, and counts from before the send, because the server may have
// started counting at any time between the send and the reply. A renewal under way moves nothing. If it did:
//
//	holder                                  network      server
//	sends a renewal, trusts send + lease    goes silent
//	                                                     the lease, counted from the last renewal that
//	                                                     arrived, is over: another acquires
//	acts until send + lease
//
// there would be two holders for as long as the renewal was late (TestDeadline_Grant_CountsFromBeforeTheSend,
// TestRenewal_Unanswered_IsRepeatedUntilTheDeadline).
//
// # Renew and lose
//
//	                    renewed: deadline = send + lease - margin
//	                   +---------+
//	             Add   v         |         deadline, "not held", no heartbeat: ErrLost
//	(granted) ------> registered +-------> ended
//	                   |                   MaxHold: ErrMaxHold
//	                   +--> Remove, before the release is sent
//
// The rules are:
//
//  1. One goroutine keeps a heap of all leases of a client by their next event: a renewal, the deadline, the end of
//     MaxHold, or a look (a request that renews nothing).
//  2. Every third of its length a lease is renewed, on an absolute schedule. Renewals that are due at about the same
//     time go out in batches of at most batchSize leases, of at most batchRecords records, and of at most trackedKeys
//     keys that are tracked. If the keys of a call have to be of one slot (script.Runner.Apart), each slot has its
//     batches. At most maxCalls calls are under way, and the lease that ends first goes first. A call that fails proves
//     nothing about its leases, and one lease's failure never affects another lease.
//  3. Confirmed: the deadline moves. "Not held": ErrLost. An error: the renewal is repeated after a sixtieth of the
//     lease, 250 ms at most; the deadline stays the same. No reply: the call keeps its place for half of the rest of
//     the lease, and is then sent again. So a slow server does not receive the same renewal again and again: see
//     replyTimeout. A reply that comes after that is recorded, too: see recordLateReply.
//  4. At the deadline the lease is over, whatever is under way.
//  5. Keys are tracked by the server, so that a holder learns within milliseconds of a key that was deleted, flushed or
//     evicted: see tracker. After an invalidation the leases of that key are looked at; after a lost connection all
//     leases are.
//  6. While a slot is being migrated its keys may be on two nodes, and the server refuses a call that uses both
//     (TRYAGAIN; also if one of the keys does not exist). Then each lease of the batch is renewed alone, and a lease of
//     several keys key by key: see renewByKey. Extend is not divided so. A batch that a proxy refuses, because its keys
//     are of several slots, is renewed at once slot by slot. Nothing of it has run, and no renewal counts as failed
//     (TestRenewal_SeveralSlotsRefused_NoneFails in rlock).
//  7. If the wall clock has run 500 ms ahead of the monotonic clock between two reads, everything is renewed at once:
//     see Sleep.
//
// # Renewal scripts
//
// A renewal script has KEYS = the leases' keys (Key and More of each) and ARGV = owner, lease in ms for each. It
// replies with one integer for each:
//
//	 1      renewed; to a look, 1 + the ms left, or 1 if the lease has no end
//	 0      the owner holds nothing there
//	-1      not known: an error on that key alone
//	-2      the key holds another type: the lease is over, and was not released
//	-3      the user may not read that key
//
// Lease -1 is a look: it only reads whether the lease is held, and for how long. (Lease 0 only reads whether it is
// held; nothing in this package sends it.) Key by key, KEYS is one of the keys and ARGV = owner, lease, the number of
// the key (from 1). The script then does its work at that key, and replies the same.
//
// # Sleep
//
// The monotonic clock of most systems stands still while the machine is suspended, or its virtual machine stopped. The
// server's clock goes on. A deadline is then later than the server's end of the lease, by the length of the sleep:
//
//	holder                                    server
//	granted for 60 s, trusted until 60 s
//	10 s later it falls asleep for 20 s
//	wakes at 10 s of its clock                30 s left
//	                                          lets another in when the holder's clock says 40 s
//	stops at 60 s
//
// Only the wall clock shows the sleep, because it runs ahead. But it may also have been set. So a jump ends nothing,
// and is not believed either: everything is renewed or looked at at once, and until the reply Until is earlier by the
// jump. A renewal that is confirmed counts from its own send. For a lease that is not renewed, "held" alone would be no
// answer, because the lease may end earlier than its holder expects. So a look reads how long it has left. That time,
// counted from before the look was sent, less the margin, is its deadline from then on. If the clock was only set, the
// deadline does not change. A reply to a request that was sent before the jump was noticed does not count
// (TestSleep_HoldAfterwards_IsTrustedAsTheServerSays, TestWallClock_Step_EndsNoHold,
// TestSleep_AnswerFromBefore_IsNoneAfterwards).
//
// A jump is noticed within a clockCheckInterval, and by Until at once. While the server does not answer, the hold's
// contexts last until the old deadline: code that acts then has to call Until.
//
// # Heartbeats
//
// A client with heartbeats shows that it is alive, so that its holds can be taken over soon after it has died: see
// [Heartbeats].
//
// # The race with release
//
// A lease is removed before its release is sent, and the reply of a renewal that was under way then is dropped.
// Otherwise the release runs, the renewal of the same instant finds nothing, and a hold that was released in order is
// reported lost. The renewal itself may still reach the server after the release. It names an owner that is never used
// again, finds nothing, and changes nothing (TestRemove_ReplyComesAfter_ChangesNothing).
package lease
