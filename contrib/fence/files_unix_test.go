//go:build unix && !solaris && !aix

package redlatchfence_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestFiles_AnyTokens_ObeyTheGuardRules(t *testing.T) {
	dir := t.TempDir()
	var f redlatchfence.Files
	rules(t, f, filepath.Join(dir, "rules"))
	exclusive(t, f, filepath.Join(dir, "exclusive"))

	ctx, path := t.Context(), filepath.Join(dir, "account")
	content := func() string {
		text := redistest.NoError(os.ReadFile(path))(t)
		return string(text)
	}
	require.NoError(t, f.Write(ctx, path, 33, []byte("first")))
	require.NoError(t, f.Write(ctx, path, 34, []byte("second")))
	require.ErrorIs(t, f.Write(ctx, path, 33, []byte("third")), redlatchfence.ErrStale)
	require.Equal(t, "second", content())
	info := redistest.NoError(os.Stat(path))(t)
	require.Zero(t, info.Mode().Perm()&^0o644)

	private := filepath.Join(dir, "private")
	require.NoError(t, redlatchfence.Files{Perm: 0o600}.Write(ctx, private, 33, nil))
	info = redistest.NoError(os.Stat(private))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.ErrorIs(t, f.Write(ctx, filepath.Join(dir, "missing", "a"), 33, nil), os.ErrNotExist)
	for _, text := range []string{"x", "33\n", "00000000000000000000\n", "000000000000000000033\n\n"} {
		require.NoError(t, os.WriteFile(path+".fence", []byte(text), 0o600))
		require.ErrorContains(t, f.Write(ctx, path, 35, []byte("third")), "holds no token", "%q", text)
	}
	require.Equal(t, "second", content(), "a fence that is damaged refuses everybody")
}

// A process that is stopped within its act keeps the next holder waiting, and is never overtaken by it.
func TestFiles_ProcessStopped_IsNotOvertaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "account")
	var f redlatchfence.Files
	for name, end := range map[string]func(c *redistest.Child){
		"goes_on": func(c *redistest.Child) {
			c.Signal(t, syscall.SIGCONT)
			redistest.NoError(c.In.Write([]byte("\n")))(t)
			require.Equal(t, "out <nil>", c.Line(t))
		},
		"dies": func(c *redistest.Child) { c.Cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			path := path + name
			c := redistest.Spawn(t, "writer", redistest.Embedded(t), path)
			require.Equal(t, "in", c.Line(t))
			c.Signal(t, syscall.SIGSTOP)
			impatient, cancel := context.WithCancelCause(t.Context())
			cancel(errors.New("impatient"))
			require.ErrorContains(t, f.Advance(impatient, path, 34), "impatient")
			end(c)
			require.NoError(t, f.Advance(t.Context(), path, 34))
			require.ErrorIs(t, f.Advance(t.Context(), path, 33), redlatchfence.ErrStale)
		})
	}
}
