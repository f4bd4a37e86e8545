//go:build !linux

package redlatchledger_test

import (
	"database/sql"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m, roles) }

func freshPostgres(t *testing.T) func() *sql.DB {
	t.Skip("PostgreSQL is started on Linux only")
	return nil
}

func freshMySQL(t *testing.T) func() *sql.DB {
	t.Skip("MariaDB is started on Linux only")
	return nil
}
