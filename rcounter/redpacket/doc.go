// Package redpacket hands out money on Redis or Valkey. An amount in whole cents is split into shares once (Split), and
// each user takes one share, first come, first served.
//
//	packet := packets.Packet("new-year")
//	_, err := packet.Send(ctx, redpacket.Spec{Total: 2000, Shares: 10, Min: 50, OpenFor: 24 * time.Hour})
//	share, err := packet.Grab(ctx, "ann") // the same share however often she asks
//	pay("ann", share.Cents)
//
// [Packet.Refund] gives back what is left, once. [Packet.Ledger] moves the records of who took what into a database
// (Spec.Ledger). [Split] is the draw alone, without a server.
//
// # What is guaranteed
//
// What was taken, what is left and what was refunded always add up to the total. A user who has a share gets the same
// answer to every Grab until the packet's retention is over. A packet fails closed: if records or shares are missing on
// the server, no user gets anything more.
//
// # What is not guaranteed
//
//   - Failover. A share that the primary acknowledged and had not replicated is gone after a failover, and another user
//     can get it. Options.MinReplicas has shares confirmed by replicas first, which makes that less likely. Move money
//     by entries that are unique over (packet, epoch, user) and, for the refund, over (packet, epoch).
//   - The server's clock. End and retention are counted on it. If it is stepped, they move with the step.
//   - Eviction, FLUSHALL and DEL. A whole packet can vanish (NotOpen), or its records or shares (ErrCorrupt).
//
// # Outcomes and errors
//
// Sold out, not open and over are outcomes in a Share, not errors. An error says that there is no answer. Those not
// exported here are in package redlatch, which says what each means.
//
// A call lasts until it is answered, its context ends or Options.RetryTimeout is over, which is one CallTimeout unless
// it is set. Within that time every verb is sent again until it is answered: all may run twice.
//
// # Cost
//
// Every verb is one round trip of one EVALSHA. Send takes one to ask for the server's time and one for every 3,900
// shares, Shares one for about 500 records. Grabs of one packet in a process share calls (Options.MaxBatch).
//
// In the repository, docs/design.md has the keys and the protocol.
package redpacket
