package redlatchledger_test

import (
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/redlatch/redlatch/internal/redistest/services"
)

func TestMain(m *testing.M) { services.Main(m, nil) }
