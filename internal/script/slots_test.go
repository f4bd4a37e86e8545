package script_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// The texts are those of servers and proxies, and such as must not be taken for them.
func TestAcrossSlots_ServersWords_AreToldApart(t *testing.T) {
	t.Parallel()
	s := redistest.Embedded(t)
	c := s.Client(t)
	for text, across := range map[string]bool{
		"CROSSSLOT Keys in request don't hash to the same slot":                               true,
		"ERR eval/evalsha command keys must be in same slot":                                  true,
		"ERR 'EVAL' command keys must in same slot":                                           true,
		"ERR Cross-slot queries are not supported for this command":                           true,
		"ERR Cross-slot queries are disabled. They can be enabled by using the --enable-c":    true,
		"TRYAGAIN Multiple keys request during rehashing of slot":                             false,
		"MOVED 866 127.0.0.1:1":                                                               false,
		"NOPERM No permissions to access the key 'same slot'":                                 false,
		"ERR Script attempted to access keys in another slot":                                 false,
		"Keys do not hash to the same slot script: c0ffee, on @user_script:3.":                false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                   false,
		"ERR bad lua script for redis cluster, all the keys that the script uses should be p": false,
	} {
		s.Embedded.SetError(text)
		r := script.NewRunner(c, 20*time.Second)
		_, err := r.Attempt(t.Context(), script.Call{Script: script.New("two", "return 1"), Keys: []string{"a", "b"}})
		require.Error(t, err)
		require.Equal(t, across, script.AcrossSlots(err), text)
		require.Equal(t, across, r.Apart(), text)
		require.Equal(t, across, r.Lacks.Has(errs.LackSlots), text)
		if across {
			require.ErrorContains(t, err, strings.TrimPrefix(text, "ERR "))
			require.False(t, script.NotAnswered(err), "it is no call of unknown outcome")
			require.False(t, script.Unsupported(errors.Unwrap(errors.Unwrap(err))), "and no missing command: %s", text)
		}
		one := script.NewRunner(c, 20*time.Second)
		_, err = one.Attempt(t.Context(), script.Call{Script: script.New("one", "return 1"), Keys: []string{"{a}b", "{a}"}})
		require.Error(t, err)
		require.False(t, script.AcrossSlots(err), "parts would not help: %s", text)
		require.False(t, one.Apart())
	}
	require.False(t, script.AcrossSlots(nil))
	require.False(t, script.AcrossSlots(errors.New("CROSSSLOT")), "no server said so")
}

// What is refused has not run, and runs in parts: see rlock and rcounter.
func TestBySlot_Items_OneCallASlotInOrder(t *testing.T) {
	t.Parallel()
	type item struct {
		key string
		n   int
	}
	var items []item
	for n := range 40 {
		items = append(items, item{fmt.Sprint("k", n%8), n})
	}
	var mu sync.Mutex
	got := map[string][]item{}
	script.BySlot(items, func(x item) string { return x.key }, func(part []item) {
		mu.Lock()
		defer mu.Unlock()
		require.NotContains(t, got, part[0].key, "one call")
		got[part[0].key] = part
	})
	require.Len(t, got, 8)
	for key, part := range got {
		require.Equal(t, slices.DeleteFunc(slices.Clone(items), func(x item) bool { return x.key != key }), part)
	}
}
