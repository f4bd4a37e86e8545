package keyname_test

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/stretchr/testify/require"
)

func TestCheck_SplitOverSlots_IsRefused(t *testing.T) {
	for _, bad := range []string{"", "foo{bar", "{}x", "x{}y{z}", "foo}bar", "a}b", "\xff", "a\x00b",
		strings.Repeat("n", keyname.MaxLen+1)} {
		require.ErrorIs(t, keyname.Check(bad), errs.ErrInvalidName, "%.20q", bad)
	}
	for _, good := range []string{"foo", "foo{bar}", "{a}", "a}b{c}", "ü", " ", strings.Repeat("n", keyname.MaxLen)} {
		require.NoError(t, keyname.Check(good), "%.20q", good)
	}
}

func TestDerived_AnyName_SharesTheSlot(t *testing.T) {
	for _, name := range []string{"foo", "foo{bar}", "{a}", "{a}b", "a}b{c}", "a:b", "order:{7}:x"} {
		require.NoError(t, keyname.Check(name))
		require.Equal(t, keyname.Slot(name), keyname.Slot(keyname.Prefix("redisson_lock__channel", name)), name)
		require.Equal(t, keyname.Slot(name), keyname.Slot(keyname.Prefix("redlatch_queue", name)), name)
		require.Equal(t, keyname.Slot(name), keyname.Slot(keyname.Suffix(name, "timeout")), name)
		require.Equal(t, keyname.Slot(name), keyname.Slot(keyname.Suffix(name, "notes")), name)
	}
}

func TestDerived_Names_FollowRedisson(t *testing.T) {
	require.Equal(t, "redisson_lock__channel:{n}", keyname.Prefix("redisson_lock__channel", "n"))
	require.Equal(t, "redisson_lock__channel:a{b}", keyname.Prefix("redisson_lock__channel", "a{b}"))
	require.Equal(t, "{n}:timeout", keyname.Suffix("n", "timeout"))
	require.Equal(t, "a{b}:timeout", keyname.Suffix("a{b}", "timeout"))
	require.Equal(t, "redisson_lock__channel:{n}", keyname.Prefix("redisson_lock__channel", "{n}"))
	require.Equal(t, "{n}:timeout", keyname.Suffix("{n}", "timeout"))
}

func TestOwn_OnePairOfBraces_HasKeysApart(t *testing.T) {
	for _, name := range []string{"n", "a{n}", "{n}a", "{n}{m}", "{{n}", "{n}}", "{n}{}", "n}{m}", "{}", "{"} {
		require.Equal(t, name, keyname.Own(name))
		require.NoError(t, keyname.CheckPair(name), name)
	}
	for _, pair := range []string{"{n}", "{:}", "{ }"} {
		own := pair + "{}"
		require.Equal(t, own, keyname.Own(pair))
		require.ErrorIs(t, keyname.CheckPair(pair), errs.ErrInvalidName)
		require.ErrorIs(t, keyname.Check(own), errs.ErrInvalidName, "it is no name")
		require.Equal(t, "redlatch_queue:"+own, keyname.Prefix("redlatch_queue", pair))
		require.Equal(t, own+":notes", keyname.Suffix(pair, "notes"))
		require.Equal(t, keyname.Slot(pair), keyname.Slot(own))
	}
}

func TestSlot_Keys_AgreeWithTheSpecification(t *testing.T) {
	for key, slot := range map[string]uint16{"123456789": 0x31C3, "foo": 12182, "{user1000}.following": 3443,
		"foo{}{bar}": 8363, "bar": 5061} {
		require.Equal(t, slot, keyname.Slot(key), key)
	}
}

func FuzzAcceptedNamesKeepOneSlot(f *testing.F) {
	f.Add("a{b}c")
	f.Fuzz(func(t *testing.T, name string) {
		if keyname.Check(name) != nil {
			return
		}
		if s := keyname.Slot(name); s != keyname.Slot(keyname.Prefix("p", name)) ||
			s != keyname.Slot(keyname.Suffix(name, "s")) {
			t.Fatalf("%q is spread over slots", name)
		}
	})
}
