package redlatchledger_test

import (
	"os"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/databases"
)

func TestMain(m *testing.M) {
	if os.Getenv(redistest.RoleEnv) != "" {
		redistest.Main(m, roles)
		return
	}
	code := m.Run()
	databases.Stop()
	os.Exit(code)
}
