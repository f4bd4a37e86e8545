package redlatchfence_test

import (
	"context"
	"database/sql"
	"os"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"
	"github.com/stretchr/testify/require"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/redistest/services"
)

func TestMain(m *testing.M) { services.Main(m, roles) }

// eachDatabase runs a test on each of them, with the table fences.
func eachDatabase(t *testing.T, test func(t *testing.T, d redlatchfence.Dialect, open func() *sql.DB)) {
	services.Each(t, func(t *testing.T, dialect string, open func() *sql.DB) {
		d := redlatchfence.Dialect(dialect)
		require.NoError(t, d.Create(t.Context(), open()))
		test(t, d, open)
	})
}

const resource = "account:7"

// rules are what every guard promises of tokens that come one after the other.
func rules(t *testing.T, guard redlatchfence.Guard, resource string) {
	ctx := t.Context()
	require.NoError(t, guard.Advance(ctx, resource, 33))
	require.NoError(t, guard.Advance(ctx, resource, 33), "an equal token is admitted")
	require.NoError(t, guard.Advance(ctx, resource, 34))
	require.ErrorIs(t, guard.Advance(ctx, resource, 33), redlatchfence.ErrStale)
	require.ErrorIs(t, guard.Advance(ctx, resource, 33), redlatchfence.ErrStale, "a stale token stays stale")
	require.NoError(t, guard.Advance(ctx, resource, 34), "a refusal changes nothing")
	const last = 1<<53 - 1 // which is the greatest
	require.NoError(t, guard.Advance(ctx, resource, last))
	require.ErrorIs(t, guard.Advance(ctx, resource, last-1), redlatchfence.ErrStale, "one less is less")

	for _, token := range []redlatchfence.Token{0, -1, 1 << 53} {
		err := guard.Advance(ctx, resource, token)
		require.ErrorIs(t, err, redlatchfence.ErrInvalid)
		require.ErrorContains(t, err, "token is ")
	}
	for _, name := range []string{"", "a\x00b", "\xff", string(make([]byte, 2000))} {
		err := guard.Advance(ctx, name, 33)
		require.ErrorIs(t, err, redlatchfence.ErrInvalid)
		require.ErrorContains(t, err, "resource is ")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, guard.Advance(ended, resource+"2", 1), context.Canceled)
}

// exclusive are what an Exclusive promises of acts that meet.
func exclusive(t *testing.T, guard redlatchfence.Exclusive, resource string) {
	ctx := t.Context()
	began, end, second := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	first := make(chan error, 1)
	go func() {
		first <- guard.Do(ctx, resource, 33, func(context.Context) error {
			close(began)
			<-end
			return nil
		})
	}()
	<-began
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, guard.Advance(impatient, resource, 34), context.Canceled, "it waits for the act of 33")
	go func() { second <- guard.Advance(ctx, resource, 34) }()
	select {
	case err := <-second:
		t.Fatal("34 did not wait for the act of 33: ", err)
	default:
	}
	close(end)
	require.NoError(t, <-first)
	require.NoError(t, <-second)
	called := false
	require.ErrorIs(t, guard.Do(ctx, resource, 33, func(context.Context) error { called = true; return nil }),
		redlatchfence.ErrStale)
	require.False(t, called)

	failed := guard.Do(ctx, resource, 35, func(context.Context) error { return os.ErrClosed })
	require.ErrorIs(t, failed, os.ErrClosed)
	require.ErrorIs(t, guard.Advance(ctx, resource, 34), redlatchfence.ErrStale, "35 stays seen, though its act failed")
}
