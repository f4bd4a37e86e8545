package script_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// The texts are those of servers and proxies, and such as must not be taken for them.
func TestARefusalOfSeveralSlotsIsToldFromWhatFailed(t *testing.T) {
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

// What is refused has not run, and runs in parts: each once, the items of a slot in their order.
func TestACallOfSeveralSlotsRunsInParts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server)
	p.RefuseSeveralSlots(redistest.CrossSlot)
	r := script.NewRunner(p.Server().Client(t), 20*time.Second)
	var book redistest.Logbook
	r.Lacks = errs.NewLacks(book.Logger())
	push := script.New("push", "for i, key in ipairs(KEYS) do redis.call('rpush', key, ARGV[i]) end return 1")
	type item struct{ key, value string }
	var items []item
	for i := range 40 {
		items = append(items, item{"k" + strconv.Itoa(i%8), strconv.Itoa(i)})
	}
	send := func(items []item) error {
		call := script.Call{Script: push, Once: true}
		for _, x := range items {
			call.Keys, call.Args = append(call.Keys, x.key), append(call.Args, x.value)
		}
		_, err := r.Do(t.Context(), call)
		return err
	}
	require.False(t, r.Apart())
	require.True(t, script.AcrossSlots(send(items)))
	require.True(t, r.Apart())
	var mu sync.Mutex
	var slots []uint16
	script.BySlot(items, func(x item) string { return x.key }, func(part []item) {
		if err := send(part); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		slots = append(slots, keyname.Slot(part[0].key))
	})
	slices.Sort(slots)
	require.Len(t, slices.Compact(slots), 8)
	direct := server.Client(t)
	for i := range 8 {
		all := direct.B().Lrange().Key("k" + strconv.Itoa(i)).Start(0).Stop(-1).Build()
		values, err := direct.Do(t.Context(), all).AsStrSlice()
		require.NoError(t, err)
		var want []string
		for n := range 5 {
			want = append(want, strconv.Itoa(8*n+i))
		}
		require.Equal(t, want, values)
	}
	require.Equal(t, 1, book.Count("several slots"), &book)
}
