package redlatchledger

import (
	_ "embed"
	"strings"
)

// Schema is the tables and views, and creates those that are not there: run it once, before the first Mover, as part of
// your migrations, or call Create. Each statement ends with a semicolon at the end of a line.
//
//	moves   (stock, epoch, serial, kind, ordinal, n, claimant, request, at)   an entry of a stock each; at is microseconds since 1970,
//	                                                                          by the Redis server's clock
//	mark    (stock, epoch, nth, next)                                         an opening each: the nth of the stock, and the serial of the
//	                                                                          entry that comes next
//	units   (stock, epoch, ordinal, n, claimant, request, serial)             a view: who has what. Units ordinal to ordinal + n - 1,
//	                                                                          which entry serial granted and that did not return
//	shares  (packet, epoch, serial, kind, ordinal, n, claimant, cents, at)    an entry of a red packet each
//	packets (packet, epoch, nth, next, total, shares, taken, taken_cents,     a red packet each: its total in cents and its number of
//	         refund_cents)                                                    shares, how many are taken, their sum, and what went back,
//	                                                                          which is NULL until then
//
// In MySQL texts are varbinary, because its texts are compared without regard to case or to spaces at their end: two
// claimants would be one.
func (d Dialect) Schema() string {
	view := "CREATE OR REPLACE VIEW " + units
	if d == SQLite {
		view = "CREATE VIEW IF NOT EXISTS " + units
	}
	if d == MySQL { // it has no CREATE INDEX IF NOT EXISTS, nor an index on a text without a length
		return strings.NewReplacer("kind     text", "kind varbinary(16)", "text", "varbinary(1024)", ");\n",
			") ENGINE=InnoDB;\n", "-- index", "INDEX").Replace(tables) + view
	}
	return tables + indexes + view
}

//go:embed sql/tables.sql
var tables string

//go:embed sql/indexes.sql
var indexes string

// units: by ordinal, a grant is followed by what was returned of it, of the same claimant. What is
// left are pieces. One begins where the grant does, and one after each return; each lasts to the next return, or to the
// end of the grant. This is what pieces does, too, which need not sort. Window functions read each row once, where a
// join on ranges of ordinals reads all returns for each grant in PostgreSQL and MySQL. All windows are partitions of a
// claimant's rows, so that a condition on the claimant reaches the index.
//
//go:embed sql/units.sql
var units string
