package keyname_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

func TestCheck_KeyOfAnotherObject_IsRefused(t *testing.T) {
	for _, p := range keyname.Derived {
		for _, name := range []string{"x", "order:{7}", "{x}:plain"} {
			require.ErrorIs(t, keyname.Check(keyname.Prefix(p, name)), errs.ErrInvalidName, "%s of %s", p, name)
			require.NoError(t, keyname.Shape(keyname.Prefix(p, name)))
		}
	}
	for _, s := range append(slices.Clone(keyname.Endings), "2b3c4d5e:7:rwlock_timeout:1") {
		for _, name := range []string{"x", "order:{7}", "{x}:plain"} {
			require.ErrorIs(t, keyname.Check(keyname.Suffix(name, s)), errs.ErrInvalidName, "%s of %s", s, name)
			require.NoError(t, keyname.Shape(keyname.Suffix(name, s)))
		}
		for _, good := range []string{s, "order:7:" + s, "{order:7}:" + s + "s", "{" + s + "}", "{x}" + s, "x:{" + s + "}"} {
			if !strings.Contains(s, "rwlock_timeout") {
				require.NoError(t, keyname.Check(good), good)
			}
		}
	}
	for _, bad := range []string{"redlatch_alive:2b3c4d5e-5a1e-8c61-9d0a-6f4f3a2b1c0d",
		"redisson_countdownlatch__channel__{x}", "rc:{s}:e"} {
		require.ErrorIs(t, keyname.Check(bad), errs.ErrInvalidName, bad)
	}
	for _, good := range []string{"redlatch_queue", "redlatch_queues:{x}", "my:redlatch_queue:{x}", "rc:7", "rc",
		"redlatch_check:abc"} {
		require.NoError(t, keyname.Check(good), good)
	}
}
