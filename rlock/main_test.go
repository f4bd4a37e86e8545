package rlock_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// roles are what this test binary can be when it runs itself again as another process.
var roles = map[string]func() error{}

func TestMain(m *testing.M) { redistest.Main(m, roles) }
