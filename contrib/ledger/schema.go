package redlatchledger

import "strings"

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
	view := "CREATE OR REPLACE VIEW" + units
	if d == SQLite {
		view = "CREATE VIEW IF NOT EXISTS" + units
	}
	if d == MySQL { // it has no CREATE INDEX IF NOT EXISTS, nor an index on a text without a length
		return strings.NewReplacer("kind     text", "kind varbinary(16)", "text", "varbinary(1024)", ");\n",
			") ENGINE=InnoDB;\n", "-- index", "INDEX").Replace(tables) + view
	}
	return tables + indexes + view
}

const tables = `CREATE TABLE IF NOT EXISTS moves (
  stock    text   NOT NULL,
  epoch    bigint NOT NULL,
  serial   bigint NOT NULL,
  kind     text   NOT NULL,
  ordinal  bigint NOT NULL,
  n        bigint NOT NULL,
  claimant text   NOT NULL,
  request  text   NOT NULL,
  at       bigint NOT NULL,
  -- index moves_by_ordinal (stock, epoch, ordinal, kind),
  -- index moves_by_claimant (stock, claimant, epoch, ordinal, kind),
  PRIMARY KEY (stock, epoch, serial)
);
CREATE TABLE IF NOT EXISTS mark (
  stock text   NOT NULL,
  epoch bigint NOT NULL,
  nth   bigint NOT NULL,
  next  bigint NOT NULL,
  PRIMARY KEY (stock, epoch),
  UNIQUE (stock, nth)
);
CREATE TABLE IF NOT EXISTS shares (
  packet   text   NOT NULL,
  epoch    bigint NOT NULL,
  serial   bigint NOT NULL,
  kind     text   NOT NULL,
  ordinal  bigint NOT NULL,
  n        bigint NOT NULL,
  claimant text   NOT NULL,
  cents    bigint NOT NULL,
  at       bigint NOT NULL,
  -- index shares_by_claimant (packet, claimant, epoch),
  PRIMARY KEY (packet, epoch, serial)
);
CREATE TABLE IF NOT EXISTS packets (
  packet       text   NOT NULL,
  epoch        bigint NOT NULL,
  nth          bigint NOT NULL,
  next         bigint NOT NULL,
  total        bigint NOT NULL,
  shares       bigint NOT NULL,
  taken        bigint NOT NULL,
  taken_cents  bigint NOT NULL,
  refund_cents bigint,
  PRIMARY KEY (packet, epoch),
  UNIQUE (packet, nth)
);
`

const indexes = `CREATE INDEX IF NOT EXISTS moves_by_ordinal ON moves (stock, epoch, ordinal, kind);
CREATE INDEX IF NOT EXISTS moves_by_claimant ON moves (stock, claimant, epoch, ordinal, kind);
CREATE INDEX IF NOT EXISTS shares_by_claimant ON shares (packet, claimant, epoch);
`

// units: by ordinal, a grant is followed by what was returned of it, of the same claimant. What is
// left are pieces. One begins where the grant does, and one after each return; each lasts to the next return, or to the
// end of the grant. This is what pieces does, too, which need not sort. Window functions read each row once, where a
// join on ranges of ordinals reads all returns for each grant in PostgreSQL and MySQL. All windows are partitions of a
// claimant's rows, so that a condition on the claimant reaches the index.
const units = ` units AS
SELECT stock, epoch, begins AS ordinal, COALESCE(later, past) - begins AS n, claimant, request, serial
FROM (
  SELECT stock, epoch, claimant, CASE WHEN kind = 'return' THEN ordinal + n ELSE ordinal END AS begins, LEAD(ordinal) OVER sale AS later,
    FIRST_VALUE(ordinal + n) OVER sale AS past, FIRST_VALUE(request) OVER sale AS request, FIRST_VALUE(serial) OVER sale AS serial
  FROM (
    SELECT stock, epoch, claimant, serial, kind, ordinal, n, request, MAX(CASE WHEN kind <> 'return' THEN ordinal END) OVER (
      PARTITION BY stock, claimant, epoch ORDER BY ordinal, kind ROWS UNBOUNDED PRECEDING) AS granted
    FROM moves WHERE ordinal > 0 AND kind IN ('grant', 'late', 'return')
  ) m
  WINDOW sale AS (PARTITION BY stock, claimant, epoch, granted ORDER BY ordinal, kind)
) s
WHERE COALESCE(later, past) > begins;
`
