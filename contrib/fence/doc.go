// Package redlatchfence checks fencing tokens where a lock cannot help: at the resource.
//
// A holder that is suspended, or whose packets are late, may write after its lease has ended and another one holds the
// lock. Each hold of a Fenced lock has a token greater than those of all earlier holds. A guard remembers the greatest
// token that it has seen, and refuses an act with a smaller one: [ErrStale], and nothing is written.
//
//	hold, err := red.Locks().Fenced("account:7").Lock(ctx)
//	defer hold.Unlock(ctx)
//	token, err := redlatchfence.Of(hold)
//	fences := redlatchfence.Fences{DB: db, Dialect: redlatchfence.PostgreSQL} // Dialect.Create has made the table
//	err = fences.Do(hold.Context(ctx), "account:7", token, func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance - $1 WHERE id = 7`, amount)
//		return err
//	})
//
// # Guards
//
//   - [Fences]: transactions of PostgreSQL, MySQL, MariaDB or SQLite, by a table of tokens.
//   - [Rows]: rows of a table of yours that has a column for the token.
//   - [Redis]: keys of a Redis server.
//   - [Objects]: objects of a store with conditional writes, such as S3.
//   - [Files]: files of one machine.
//   - [Memory]: what one process serves.
//   - [Handler] and [Transport] carry tokens over HTTP and refuse stale requests; package grpcfence does for gRPC.
//
// # The rule
//
// Advance before you read. A guard that first sees a token at the write admits an older write between the reading and
// the writing of the next holder, which then overwrites it: an update is lost although every write was checked.
// Advance, or a read under the token (a Do of [Fences], [Objects.Read]), closes that. An act that reads and writes
// within one Do needs nothing more.
//
// # Outcomes
//
//   - nil: the act was done, and every smaller token is refused from then on.
//   - ErrStale: a greater token was seen. Nothing was written. Acquire the lock again and start from the reading.
//   - ErrInvalid: an argument is wrong, for example a token that is not positive. Nothing was sent.
//   - any other error: the act may have been done, once.
//
// An equal token is admitted: the same hold may act many times.
//
// # What is not promised
//
// Acts with one token are not ordered. One whose reply was lost may arrive after a later one of the same hold: after an
// error of unknown outcome acquire again, which gives a greater token. A guard protects from those who use it with the
// same resource name; what writes around it is not seen. A guard that loses its tokens, as a [Memory] does with its
// process, admits stale ones until the next holder acts. Tokens order holders only as far as the lock promises that
// they grow: see rlock.Client.Fenced.
package redlatchfence
