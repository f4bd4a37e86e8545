package rig

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// Logged is a logger and what it wrote.
func Logged() (*slog.Logger, func() string) {
	var book redistest.Logbook
	return book.Logger(), book.String
}

// Evicting is a server that evicts keys, as one may ask of it and as one may not, and one that does not evict.
func Evicting(t *testing.T) map[string]rueidis.Client {
	srv := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	admin := srv.Client(t)
	Must(t, admin, "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-info")
	o := srv.Option()
	o.Username, o.Password = "app", "any"
	denied, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(denied.Close)
	return map[string]rueidis.Client{"may ask": admin, "may not": denied,
		"has nothing to fear": redistest.Start(t).Client(t)}
}

// Warned fails unless what is logged until the end of closing is one line, of eviction, where client may ask and has
// something to fear. The question ends at closing, so the line is waited for before.
func Warned(t *testing.T, client string, logged func() string, closing func() error) {
	t.Helper()
	want := 0
	if client == "may ask" {
		want = 1
		redistest.Eventually(t, 30*time.Second, "warned", func() bool { return strings.Contains(logged(), "allkeys-lru") })
	}
	require.NoError(t, closing())
	text := logged()
	require.Equal(t, want, strings.Count(text, "allkeys-lru"), "%s: %s", client, text)
	require.Equal(t, want, strings.Count(text, "\n"), text)
}
