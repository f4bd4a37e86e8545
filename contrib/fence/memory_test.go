package redlatchfence_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/redlatchtest"
)

func TestMemory_AnyTokens_ObeyTheGuardRules(t *testing.T) {
	var m redlatchfence.Memory
	rules(t, &m, resource)
	exclusive(t, &m, "account:8")
}

func TestOf_FencedHolds_GivesGrowingTokens(t *testing.T) {
	red := redlatchtest.New(t).Open()
	var last redlatchfence.Token
	for range 2 {
		hold := redistest.NoError(red.Locks().Fenced("account:7").Lock(t.Context()))(t)
		token := redistest.NoError(redlatchfence.Of(hold))(t)
		require.NoError(t, token.Check())
		require.Greater(t, token, last)
		last = token
		require.NoError(t, hold.Unlock(t.Context()))
	}
	hold := redistest.NoError(red.Locks().Reentrant("account:7").Lock(t.Context()))(t)
	_, err := redlatchfence.Of(hold)
	require.ErrorIs(t, err, redlatchfence.ErrInvalid)
	require.NoError(t, hold.Unlock(t.Context()))
}
