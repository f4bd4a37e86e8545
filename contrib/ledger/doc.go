// Package redlatchledger moves the ledgers of stocks and red packets into an SQL database, SQLite, PostgreSQL, MySQL or
// MariaDB, so that no entry is lost without anybody noticing. It imports no driver: open the database with yours, and
// name the Dialect.
//
//	m := redlatchledger.Mover{DB: db, Dialect: redlatchledger.PostgreSQL, Stock: "sale"} // Dialect.Create has made the tables
//	spec.Opened = m.Opened
//	st, err := sale.OpenOrJoin(ctx, spec)
//	err = m.Announce(ctx, st.Epoch)
//	go m.Keep(ctx, sale, time.Second)
//
// A stock that was opened with Spec.Ledger writes an entry for everything that happens to its units, in the script that
// does it, and numbers the entries without a hole. A Mover writes them to the table moves, under the primary key
// (stock, epoch, serial), and notes in mark which number comes next. Both are one transaction, and only after its
// commit is anything removed from the server.
//
//   - An entry that comes again changes nothing: after a crash, and from several Movers, in one process or in many.
//   - An entry whose number is not the next is ErrHole, and nothing is written: those before it were lost.
//   - An entry whose number another one has in the database is ErrReissued, and nothing is written: a failover has
//     forgotten that one. Stock.Restore with Mover.Entries sets the stock right, and the Mover can go on.
//   - An entry of an opening that was not announced to the database is ErrUnknownOpening, and nothing is written.
//   - No row of moves is ever changed or deleted. Who has what is a view, units; Mover.Units and Mover.UnitsOf read it
//     faster.
//
// [Mover.Also] does more in the same transaction: it gets each entry exactly once, in their order. [Mover.After] comes
// after the commit, and may be Stock.Publish, which shows the entries to live pages.
//
// # Openings
//
// A server that has lost a stock with all that it knew, and on which it is opened again, sells every unit a second
// time, and nothing on the server tells the two openings from two sales. The database can. Each opening is announced to
// it:
//
//   - [Mover.Announce], by every process that has opened or joined the stock, when it starts. It tells of the first
//     opening, and is refused for any other.
//   - [Mover.Admit], by the one who decides that there is another sale of the same name. It is never called where a
//     process starts.
//   - [Mover.Carry], when the stock was lost, for the opening that goes on with its sale: see ExampleMover.
//
// With [Mover.Opened] as stock.Spec.Opened a process that starts after a loss does not open the stock at all. That is a
// look before the act: without it, or with a process of an older version, the Movers refuse, so that the database has
// the units of one opening.
//
// # Red packets
//
// A [PacketMover] does the same for the ledger of a red packet, with the tables shares and packets: each share that is
// taken, and the refund, with its amount in cents. It commits nothing that contradicts the packet's total
// (ErrUnbalanced). A packet has no Restore: after ErrReissued settle it from the rows of shares, by hand.
//
// # What is not promised
//
// An entry that the server has lost before a Mover has read it is not there. With a failover that is noticed only if
// the number is given again; a server that lost its last entries and then sold nothing has nothing that contradicts the
// database. Restore after every failover therefore, or have Options.MinReplicas confirm each sale.
package redlatchledger
