package rcounter_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest/table"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/stretchr/testify/require"
)

// TestCounter_EachRow_DoesWhatItSays runs the tables in testdata/scripts. A call has the options of the counter k, as
// far as they are not the zero value, ids and numbers.
func TestCounter_EachRow_DoesWhatItSays(t *testing.T) {
	t.Parallel()
	table.RunAll(t, "testdata/scripts", table.How{Call: calls})
}

func calls(t *testing.T, c rueidis.Client) func(t *testing.T, name string, args []string) string {
	client := on(t, c, patient)
	return func(t *testing.T, name string, args []string) string {
		t.Helper()
		var o rcounter.CounterOptions
		var ids []string
		var numbers []int64
		for _, arg := range args {
			option, text, isOption := strings.Cut(arg, "=")
			if !isOption {
				option, text = "", arg
			}
			n, err := strconv.ParseInt(text, 10, 64)
			switch {
			case err != nil:
				ids = append(ids, arg)
			case option == "initial":
				o.Initial = n
			case option == "min":
				o.Min = &n
			case option == "max":
				o.Max = &n
			default:
				numbers = append(numbers, n)
			}
		}
		k := client.Counter("k", o)
		var reply any
		var err error
		switch name {
		case "add":
			reply, err = k.Add(ctx, numbers[0])
		case "set":
			reply, err = numbers[0], k.Set(ctx, numbers[0])
		case "cas":
			reply, err = k.CompareAndSet(ctx, numbers[0], numbers[1])
		case "addonce": // call, id
			var replayed bool
			reply, replayed, err = k.AddOnceAs(ctx, ids[0], ids[1], numbers[0])
			if replayed {
				reply = fmt.Sprint(reply, " replayed")
			}
		}
		for known, text := range map[error]string{errs.ErrOutOfRange: "out of range", errs.ErrOverflow: "overflow",
			errs.ErrWrongType: "wrong type", errs.ErrMismatch: "mismatch"} {
			if errors.Is(err, known) {
				return fmt.Sprintf("error: %s, %v", text, reply)
			}
		}
		require.NoError(t, err)
		return fmt.Sprint(reply)
	}
}
