package redlatchfence_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
)

// Withdraw takes an amount from account 7, unless a later holder of the lock has been there. fences has its table:
// Dialect.Create makes it, once.
func Withdraw(ctx context.Context, red *redlatch.Client, fences redlatchfence.Fences, amount int64) error {
	hold, err := red.Locks().Fenced("account:7").Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	token, err := redlatchfence.Of(hold)
	if err != nil {
		return err
	}
	return fences.Do(hold.Context(ctx), "account:7", token, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance - $1 WHERE id = 7`, amount)
		return err
	})
}

func TestWithdraw_LaterHolderWasThere_IsStale(t *testing.T) {
	red, db, end := setup()
	defer end()
	require.NoError(t, redlatchfence.SQLite.Create(t.Context(), db))
	fences := redlatchfence.Fences{DB: db, Dialect: redlatchfence.SQLite}
	for range 2 {
		require.NoError(t, Withdraw(t.Context(), red, fences, 10))
	}
	hold, err := red.Locks().Fenced("account:7").Lock(t.Context())
	require.NoError(t, err)
	defer hold.Unlock(t.Context())
	token, err := redlatchfence.Of(hold)
	require.NoError(t, err)
	require.NoError(t, fences.Advance(t.Context(), "account:7", token+1_000_000_000)) // a holder from the future
	require.NoError(t, hold.Unlock(t.Context()))
	require.ErrorIs(t, Withdraw(t.Context(), red, fences, 10), redlatchfence.ErrStale)
	var balance int64
	require.NoError(t, db.QueryRow(`SELECT balance FROM account WHERE id = 7`).Scan(&balance))
	require.EqualValues(t, 80, balance)
}
