// Package redlatchledger keeps the ledgers of sales and red packets in an SQL database, SQLite, PostgreSQL, MySQL or
// MariaDB, so that no entry is lost without anybody noticing, and a sale can be restored from it. It imports no driver:
// open the database with yours, and name the Dialect.
//
//	book := redlatchledger.Book{DB: db, Dialect: redlatchledger.PostgreSQL, Sale: "phones"}
//	options.Books = func(string) stock.Book { return book } // in stock.Options; Dialect.Create has made the tables
//	sale := client.Sale("phones")
//	err := sale.Open(ctx, stock.Spec{Limit: 100, OpenFor: time.Hour, Ledger: true})
//	go book.Keep(ctx, sale, time.Second)
//
// A sale with Spec.Ledger writes an entry for everything that happens to its units, and for every decision that an
// order gets none, in the script that does it, and numbers the entries without a hole. A Book writes them to the table
// sale_entries, under the primary key (sale, serial), and the last serial to sales. Both are one transaction, and only
// after its commit is anything removed from the server.
//
//   - Entries that come again change nothing: after a crash, and from several Books, in one process or in many.
//   - Entries that the database contradicts are redlatch.ErrMismatch, and nothing is written: a failover has forgotten
//     those that the database has, or the server has lost the sale and somebody opened it a second time. Sale.Restore
//     mends it, and the Books go on by themselves.
//   - Entries that do not follow the last one are ErrHole, and nothing is written: those before them were lost.
//   - No row of sale_entries is ever changed or deleted. So the database can answer every payment, however often it
//     comes, without the server: see ExampleBook_Order.
//
// [Book.Also] does more in the same transaction: it gets each entry exactly once, in their order. [Book.After] comes
// after the commit. Restore moves entries, too: so the Book of stock.Options.Books has the same Also and After as that
// of Keep.
//
// # When the server has lost the sale
//
// Open asks the book. So no process sells a second time what Redis has lost: every verb is stock.ErrNoStock until
// somebody has run Sale.Restore, which reads the book. It may be killed anywhere and run again, and no mover needs to
// be stopped for it.
//
// # Live pages
//
// [Live] publishes the entries, as a Book's After, and yields them to a page.
//
// # Red packets
//
// A [PacketMover] does the same for the ledger of a red packet, with the tables shares and packets: each share that is
// taken, and the refund, with its amount in cents. It commits nothing that contradicts the packet's total
// (ErrUnbalanced). A packet has no Restore: after redlatch.ErrMismatch settle it from the rows of shares, by hand.
//
// # What is not promised
//
// An entry that the server has lost before a Book has read it is not there. With a failover that is noticed only if its
// serial is given again; a server that lost its last entries and then sold nothing has nothing that contradicts the
// database. Restore after every failover therefore, or have Options.MinReplicas confirm each sale.
package redlatchledger
