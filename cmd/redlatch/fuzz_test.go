//go:build unix

package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A URL that the command refuses is named without its password.
func FuzzURL(f *testing.F) {
	for _, u := range []string{
		"redis://127.0.0.1:6379/3", "rediss://user:secretword@host:1?dial_timeout=1s", "unix:///run/redis.sock?db=1",
		"redis://:secretword@host:port", "redis://:secret@word@host/%zz", "redis://h?addr=%", "://", "", "redis://[::1",
		"redis://h:1?master_set=m&addr=h:2&client_cache=x", "redis://user:secretword", "redis:/user:secretword@host:x",
	} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, u string) {
		if strings.ContainsRune(u, 0) {
			return
		}
		s := server{url: u}
		_, err := s.option()
		if parsed, bad := url.Parse(u); err != nil && bad == nil && parsed.User != nil {
			password, _ := parsed.User.Password()
			if len(password) > 5 && strings.Count(u, password) == 1 {
				require.NotContains(t, err.Error(), password)
			}
		}
		if before, _, at := strings.Cut(u, "@"); err != nil && at && strings.Contains(before, ":secretword") {
			require.NotContains(t, err.Error(), "secretword")
		}
	})
}
