// Package tenuremodel is a model of tenures (rlock/tenancy.go), of which every state is looked at. It is for tests.
//
// [Search] goes through every order of events, breadth first, so the trace that it prints is a shortest one. Time is in
// ticks, and every instant is kept as a countdown, so that states repeat. An owner's number that nothing refers to any
// more stands for a new owner.
//
//	state      what there is: the server, the processes with their tenures, what is under way
//	server     the scripts: acquire, release, lib/handover
//	process    what a process does: a caller comes, leaves, has its turn, unlocks; a tenure begins, is lost, is given back
//	hear       what a process does with replies and grants
//	events     what can happen next, and what is due
//	time       a tick; what is forgotten and sorted, so that fewer states differ
//	config     what is searched, and what the library does for safety and progress; any rule can be off
//	check      the properties
//
// A tenure is in one of these conditions; the table is becomes in state.go, and the model panics at any other change:
//
//	nothing --> asking --> held --> releasing --> nothing
//	              |  |       | |          |          ^
//	              |  |       | +-> ended  |          |
//	              |  |       |    (lost)  |          |
//	              |  v       v      v     v          |
//	              |  +-----------> pending ----------+
//	              v                ^    (released in the background, until an answer is final)
//	           leaving ------------+
//
// # What holds in every state
//
//   - No two callers act that both trust their lease. FLUSHALL excuses the holder until it learns of it.
//   - A context of an ended turn enters nothing, and an owner that was passed on is not another caller's.
//   - After a loss no turn that follows another begins later than a tenure lasts.
//   - An Unlock in time, where nothing goes wrong, finds what it releases.
//   - While another process has queued for longer than a tenure lasts no turn is passed on. Where it was queued when
//     the lock was granted, no more turns follow than callers waited.
//   - The server has no holder that no tenure will release, but for the second run of a doubled request (see
//     docs/tenures.md).
//   - From here on, if nothing goes wrong, all are served, and the lock is free in the end. This is looked at from some
//     of the states.
//
// # What is not modelled
//
//   - Readers and writers, Plain and Fenced locks, labels and leases of a caller's own, MaxHold, re-entry,
//     joins, MinReplicas, Liveness, ForceUnlock, Close, crashes, handles that are dropped. So no process transfers what
//     it holds to another of its owners (rlock/transfer.go), and an owner that is known elsewhere ends its tenure; the
//     script of the transfer is compared with the model's ([Server.Transfer]).
//   - A caller that goes on with a request that is being withdrawn: such a caller begins another request here.
//   - Renewals (proof/models).
//   - The first request of a process, whose not-after is not known yet; waiting before grants are heard; a slot that is
//     migrated.
//   - Entries of processes that were silent for long, releases that are open to Redisson's waiters, gaps in the
//     messages.
//   - Tracking: a loss is learned at the deadline.
//   - The short first lease of a hand-over, which is as long as any here.
//   - The end of a pending release after a lease; here it is repeated until an answer is final.
//   - How the library's own timing relates: a call timeout, a poll and a tenure are a tick each, a lease is four.
package tenuremodel
