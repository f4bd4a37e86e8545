// Package redlatchledger moves the ledger of a stock into an SQL database, SQLite or PostgreSQL, so that no entry is lost without
// anybody noticing. It imports no driver.
//
//	m := redlatchledger.Mover{DB: db, Stock: "sale"} // the tables are there: SQLite or PostgreSQL
//	go m.Keep(ctx, stocks.Stock("sale"), time.Second)
//
// A stock that was opened with Spec.Ledger writes an entry for everything that happens to its units, in the script that does it, and
// numbers the entries without a hole. A Mover writes them to the table moves, under the primary key (stock, epoch, serial), and notes in
// mark which number comes next. Both are one transaction, and only after its commit is anything removed from the server.
//
//   - An entry that comes again changes nothing: after a crash, and from several Movers, in one process or in many.
//   - An entry whose number is not the next is ErrHole, and nothing is written: those before it were lost.
//   - An entry whose number another one has in the database is ErrReissued, and nothing is written: a failover has forgotten that
//     one. Stock.Restore with Mover.Entries sets the stock right, and the Mover can go on.
//   - An entry of an opening that is not the first one is ErrReopened, unless Carry or Admit has announced it: the server lost the stock
//     with all that it knew, and somebody opened it again.
//   - No row is ever changed or deleted. Who has what is a view, units.
//
// [Mover.Also] does more in the same transaction: it gets each entry exactly once, in their order. [Mover.After] comes after the commit,
// and may be Stock.Publish, which shows the entries to live pages.
//
// What is not promised: an entry that the server has lost before a Mover has read it is not there. With a failover that is noticed only
// if the number is given again; a server that lost its last entries and then sold nothing has nothing that contradicts the database.
// Restore after every failover therefore, or have Options.MinReplicas confirm each sale.
package redlatchledger
