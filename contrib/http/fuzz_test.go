package redlatchhttp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/contrib/http"
	"github.com/redlatch/redlatch/internal/keyname"
)

// Whatever a client sends has a limit, and cannot choose its slot.
func FuzzKey(f *testing.F) {
	for _, text := range []string{"", "key", "{a}", "\x00", "\xff", "127.0.0.1:80", "[fe80::1%eth0]:80", "::ffff:1.2.3.4",
		"::"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, field, addr string) {
		r := &http.Request{Header: http.Header{"Key": {field}}, RemoteAddr: addr}
		for _, key := range []string{redlatchhttp.ByHeader("Key")(r), redlatchhttp.ByIP(r)} {
			require.NoError(t, keyname.Text("key", key))
			require.NotContains(t, key, "{")
		}
		require.NotEmpty(t, redlatchhttp.ByHeader("Key")(r))
	})
}
