// Package redpacket hands out money on Redis or Valkey. An amount in whole cents is split into shares once, and each
// user takes one share, first come, first served.
//
//	packet := packets.Packet("new-year")
//	_, err := packet.Send(ctx, redpacket.Spec{Total: 2000, Shares: 10, Min: 50, OpenFor: 24 * time.Hour})
//	share, err := packet.Grab(ctx, "ann") // the same share however often she asks
//	if err == nil && share.Won() {
//		pay("ann", share.Cents)
//	}
//
//	Send    splits the total and opens the packet       Inspect             what is taken and left
//	Grab    a user's share                              Shares              who has which share
//	Refund  what is left after the end, to its sender   Ledger, KeepLedger  records for a database
//
// [Split] is the draw alone, without a server.
//
// # What is guaranteed
//
// The shares that were taken, the rest and the refund always add up to the total. A user who has a share gets the same
// answer to every Grab until the packet's retention is over. A packet fails closed: if users, shares or entries of the
// ledger are missing on the server, no user gets anything more.
//
// An error means that there is no answer: call again. All verbs may run twice, and are sent again until they are
// answered, the context ends or Options.RetryTimeout is over. An answer is a Share: the user has it, or Why says that
// all shares are taken or that the time is over.
//
//	                       Send             Grab        Refund        Inspect, Shares  Ledger
//	never sent, or over    opens it         ErrNoPacket ErrNoPacket   ErrNoPacket      ErrNoPacket, once it is empty
//	being sent by another  ErrSending       ErrSending  ErrSending    ErrSending       0
//	open                   ErrAlreadyOpen   Share       ErrNotEnded   as it is         entries
//	ended                  ErrAlreadyOpen   Share       Share         as it is         entries
//	lost in part           ErrNoPacket and redlatch.ErrCorrupt, from every verb; from Ledger if entries are lost
//
// # What is not guaranteed
//
//   - Failover. A share that the primary acknowledged and had not replicated is gone after a failover, and another user
//     can get it. Options.MinReplicas has shares confirmed by replicas first, which makes that less likely. Pay by
//     entries that are unique over (packet, epoch, user) and, for the refund, over (packet, epoch).
//   - The server's clock. End and retention are counted on it. If it is stepped, they move with the step.
//   - Eviction, FLUSHALL and DEL. A whole packet can vanish, and may then be sent again: ask your database before.
//
// # Cost
//
// Every verb is one round trip of one EVALSHA. Send takes one to ask for the server's time and one for every 3,900
// shares, Shares one for about 500 records and two more, Ledger two. Grabs of one packet in a process share calls
// (Options.MaxBatch).
//
// # Files
//
//	client     New, Close            grab     Grab                   ledger   Entry, Ledger, KeepLedger
//	packet     Packet: names, keys   share    Share                  split    Split, Method
//	send       Send, spec: Spec      refund   Refund                 errors   what scripts reply, errors
//	inspect    Inspect, Shares
//
// In the repository, docs/redpackets.md is a page for users, and docs/design has the keys and the protocol.
package redpacket
