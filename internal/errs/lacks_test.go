package errs_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
)

func TestLacks_Added_AreLoggedOnceUntilDropped(t *testing.T) {
	var text strings.Builder
	l := errs.NewLacks(slog.New(slog.NewTextHandler(&text, nil)))
	require.Empty(t, l.All())
	require.False(t, l.Has(errs.LackTracking))
	no := errors.New("unknown command")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { l.Add(errs.LackTracking, no) })
	}
	all.Wait()
	require.True(t, l.Has(errs.LackTracking))
	require.False(t, l.Has(errs.LackEvalsha))
	require.Equal(t, 1, strings.Count(text.String(), "\n"), text.String())
	require.Contains(t, text.String(), `command="CLIENT TRACKING" effect="a deleted key`)

	require.True(t, l.Note(errs.LackInfo, no), "it is logged otherwise")
	require.False(t, l.Note(errs.LackInfo, no))
	require.Equal(t, 1, strings.Count(text.String(), "\n"))
	found := l.All()
	require.Len(t, found, 2)
	require.Equal(t, "CLIENT TRACKING", found[0].Command)
	require.Equal(t, "INFO", found[1].Command)
	require.Equal(t, no, found[1].Err)

	l.Drop(errs.LackTracking)
	l.Drop(errs.LackWait)
	require.False(t, l.Has(errs.LackTracking))
	require.Len(t, l.All(), 1)
	l.Add(errs.LackTracking, no)
	require.Equal(t, 2, strings.Count(text.String(), "\n"))
	commands := errs.LackedCommands()
	require.Contains(t, commands, "WAIT")
	for k := errs.LackTracking; int(k) < len(commands); k++ {
		command, effect := k.About()
		require.Equal(t, commands[k], command)
		require.NotEmpty(t, effect)
	}
}
