//go:build !linux

package redlatchledger_test

import (
	"database/sql"
	"testing"
)

func freshPostgres(t *testing.T) func() *sql.DB {
	t.Skip("PostgreSQL is started on Linux only")
	return nil
}
