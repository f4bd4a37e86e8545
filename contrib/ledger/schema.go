package redlatchledger

import (
	_ "embed"
	"strings"
)

// Schema is the tables and the view, and creates those that are not there: run it once, as part of your migrations, or
// call Create. Each statement ends with a semicolon at the end of a line.
//
//	sales        (sale, epoch, last_serial)                          a sale each: the opening whose entries are
//	                                                                 taken, and the last one
//	sale_entries (sale, serial, epoch, kind, order_id, user_id,      an entry each. at and until are microseconds
//	             item, asked, n, ordinal, at, until, why)            since 1970, by the Redis server's clock, or 0
//	sale_units   (sale, user_id, order_id, item, n, ordinal)         a view: which order has how many units, and the
//	                                                                 first of them
//	packets      (packet, epoch, last_serial, total, shares, taken,  a red packet each: its total in cents, its shares,
//	             taken_cents, refund_cents)                          those taken, their sum, and what went back or NULL
//	shares       (packet, serial, epoch, kind, ordinal, n, user_id,  an entry of a red packet each
//	             cents, at)
//
// The units of an order are ordinal to ordinal + n - 1. Only those of Anyone, after a part came back, are others: their
// entries tell.
//
// In MySQL texts are varbinary, because its texts are compared without regard to case or to spaces at their end: two
// users would be one.
func (d Dialect) Schema() string {
	view := "CREATE OR REPLACE VIEW " + units
	if d == SQLite {
		view = "CREATE VIEW IF NOT EXISTS " + units
	}
	if d == MySQL { // it has no CREATE INDEX IF NOT EXISTS, nor an index on a text without a length
		return strings.NewReplacer("kind     text", "kind varbinary(16)", "text", "varbinary(1024)", ");\n",
			") ENGINE=InnoDB;\n", "-- index", "INDEX").Replace(tableStatements) + view
	}
	return tableStatements + indexStatements + view
}

var (
	//go:embed sql/tables.sql
	tableStatements string
	//go:embed sql/indexes.sql
	indexStatements string
	//go:embed sql/units.sql
	units string
)
