package script_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/dialect"
	"github.com/redlatch/redlatch/internal/script"
)

// everyScript are the texts that are sent of all scripts of the module, and of the modules in it, by their files.
func everyScript(t *testing.T) map[string]string {
	texts := map[string]string{}
	require.NoError(t, filepath.WalkDir("../..", func(at string, d fs.DirEntry, err error) error {
		file := strings.TrimPrefix(filepath.ToSlash(at), "../../")
		folder, is := strings.CutSuffix(path.Dir(file), "/lua")
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".lua") || !is || folder == "internal/script" {
			return err
		}
		texts[file], err = script.Compose(os.DirFS(filepath.Join("../..", folder)),
			strings.TrimSuffix(path.Base(file), ".lua"))
		return err
	}))
	require.Greater(t, len(texts), 80)
	return texts
}

// The lint of the dialect: see package dialect.
func TestEveryScriptKeepsToTheDialect(t *testing.T) {
	for file, text := range everyScript(t) {
		l, err := dialect.Read(text)
		require.NoError(t, err, file)
		require.Empty(t, l.Wrong, file)
		require.NotEmpty(t, l.Commands, file)
	}
}
