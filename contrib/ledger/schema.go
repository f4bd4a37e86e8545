package redlatchledger

// The schemas for both databases. They create what is not there: run one once, before the first Mover, as part of your migrations. (On
// PostgreSQL two that create at the same time may disturb each other.)
//
//	moves (stock, epoch, serial, kind, ordinal, n, claimant, request, at)   an entry each; at is microseconds since 1970, by the
//	                                                                        Redis server's clock
//	mark  (stock, epoch, next)                                              the serial of the entry that comes next
//	units (stock, epoch, ordinal, n, claimant, request, serial)             a view: who has what. Units ordinal to ordinal + n - 1,
//	                                                                        which entry serial granted and nobody returned
const (
	// SQLite is the schema for SQLite, 3.35 or later.
	SQLite = tables + "CREATE VIEW IF NOT EXISTS" + units
	// PostgreSQL is the schema for PostgreSQL.
	PostgreSQL = tables + "CREATE OR REPLACE VIEW" + units
)

const tables = `
CREATE TABLE IF NOT EXISTS moves (
  stock    text   NOT NULL,
  epoch    bigint NOT NULL,
  serial   bigint NOT NULL,
  kind     text   NOT NULL,
  ordinal  bigint NOT NULL,
  n        bigint NOT NULL,
  claimant text   NOT NULL,
  request  text   NOT NULL,
  at       bigint NOT NULL,
  PRIMARY KEY (stock, epoch, serial)
);
CREATE INDEX IF NOT EXISTS moves_by_ordinal ON moves (stock, epoch, kind, ordinal);
CREATE INDEX IF NOT EXISTS moves_by_claimant ON moves (stock, claimant);
CREATE TABLE IF NOT EXISTS mark (
  stock text   NOT NULL,
  epoch bigint NOT NULL,
  next  bigint NOT NULL,
  PRIMARY KEY (stock, epoch)
);
`

// units: what is left of a grant are pieces. One begins where the grant does, and one after each return of a part of it, unless another
// return begins there; each lasts to the next return, or to the end of the grant.
const units = ` units AS
SELECT s.stock, s.epoch, s.ordinal,
  COALESCE((SELECT MIN(r.ordinal) FROM moves r WHERE r.stock = s.stock AND r.epoch = s.epoch AND r.kind = 'return'
    AND r.ordinal > s.ordinal AND r.ordinal < s.past), s.past) - s.ordinal AS n,
  s.claimant, s.request, s.serial
FROM (
  SELECT stock, epoch, serial, ordinal AS first, ordinal, ordinal + n AS past, claimant, request FROM moves WHERE kind IN ('grant', 'late')
  UNION
  SELECT g.stock, g.epoch, g.serial, g.ordinal AS first, r.ordinal + r.n AS ordinal, g.ordinal + g.n AS past, g.claimant, g.request
  FROM moves g JOIN moves r ON r.stock = g.stock AND r.epoch = g.epoch AND r.kind = 'return' AND r.ordinal >= g.ordinal AND r.ordinal < g.ordinal + g.n
  WHERE g.kind IN ('grant', 'late') AND r.ordinal + r.n < g.ordinal + g.n
) s
WHERE NOT EXISTS (SELECT 1 FROM moves r WHERE r.stock = s.stock AND r.epoch = s.epoch AND r.kind = 'return'
  AND r.ordinal >= s.first AND r.ordinal <= s.ordinal AND r.ordinal + r.n > s.ordinal);
`
