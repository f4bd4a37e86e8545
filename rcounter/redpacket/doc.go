// Package redpacket hands out money on Redis: an amount in whole cents, split into shares once (Split), of which each user
// takes one, first come, first served.
//
// # What is promised
//
// What was taken, what is left and what was refunded always add up to the total. A user who has a share gets the same answer
// however often it is asked for, while the packet is retained. A packet fails closed: if records or shares are missing on the
// server, nobody gets anything more.
//
// # What is not
//
//   - Failover. A share that the primary acknowledged and had not replicated is gone after a failover, and goes out again.
//     Options.MinReplicas has shares confirmed by replicas first, which makes that less likely. Money should move by entries
//     that are unique over (packet, epoch, user) and, for the refund, over (packet, epoch).
//   - The server's clock. End and retention are kept in it. If it is stepped, they move with the step.
//   - Eviction, FLUSHALL and DEL. A whole packet can go (NotOpen), or its records or shares (ErrCorrupt).
//
// # Outcomes and errors
//
// Sold out, not open and over are outcomes in a Share, not errors. An error says that there is no answer, and of which kind:
// refused before anything was sent (ErrInvalidName, ErrInvalidOption, ErrClosed), refused by the server (ErrWrongType,
// ErrAlreadyOpen, ErrSending, ErrSendLost, ErrNotEnded, ErrNoPacket, ErrCorrupt, ErrDenied), never run (ErrUnavailable), unknown
// (ErrUnknownOutcome), or done and not confirmed by replicas (ErrNotReplicated).
//
// A call lasts until its context ends, and one whose context has no deadline for at most five call timeouts. Within
// that time every verb is sent again until it is answered: all may run twice.
//
// # Keys
//
// S is Options.KeyPrefix and the name of a packet, which may not contain braces.
//
//	rc:{S}:p   hash    a Packet: its numbers (packet.lua)
//	rc:{S}:a   list    its shares not yet taken, in cents
//	rc:{S}:g   hash    who took what: user -> ordinal;cents;call
//
// The first ends retention after the packet's end. The others may be large, and a server frees what expires in one go; so they
// are left an hour more, and are unlinked in the background by the process that sent the packet, or by any call before or after.
//
// # Cost
//
// Every verb is one round trip of one EVALSHA, but Send, which asks for the server's time first and takes one for every 3,900
// shares, and Shares, one for about 500. Grabs of one process by one Packet share calls (Options.MaxBatch).
package redpacket
