package stock_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest/table"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// TestStock_EachRow_DoesWhatItSays runs the tables in testdata/scripts. Each call has an id of its own, so that it can
// be made twice.
func TestStock_EachRow_DoesWhatItSays(t *testing.T) {
	t.Parallel()
	table.RunAll(t, "testdata/scripts", table.How{Call: calls})
}

func calls(t *testing.T, c rueidis.Client) func(t *testing.T, name string, args []string) string {
	s := on(t, c, patient).Stock("s")
	return func(t *testing.T, name string, args []string) (reply string) {
		t.Helper()
		var err error
		switch name {
		case "claim": // call, claimants; b*3 is b three times
			var gs []stock.Grant
			gs, err = s.ClaimAs(ctx, args[0], claimants(args[1:])...)
			reply = answers(gs)
			for _, g := range gs {
				require.Equal(t, gs[0].Remaining, g.Remaining)
				reply = fmt.Sprintf("%s, %d left", answers(gs), g.Remaining)
			}
		case "return": // call, claimant, ordinal
			var ordinal int64
			ordinal, err = strconv.ParseInt(args[2], 10, 64)
			require.NoError(t, err)
			var ok bool
			ok, err = s.ReturnAs(ctx, args[0], args[1], ordinal)
			reply = strconv.FormatBool(ok)
		case "lookup": // claimant
			var h stock.Holding
			var ok bool
			h, ok, err = lookup(s, args[0])
			require.Equal(t, h.Won(), ok)
			reply = fmt.Sprintf("%s %s ordinal %d n %d asked %d epoch %d", h.Outcome, h.Claimant, h.Ordinal, h.N, h.Asked,
				h.Epoch)
		case "inspect":
			var st stock.State
			st, err = s.Inspect(ctx)
			reply = fmt.Sprintf("%s, limit %d sold %d remaining %d seq %d epoch %d, starts in %gs ends in %gs gone in %gs",
				st.Phase, st.Limit, st.Sold, st.Remaining, st.Seq, st.Epoch, st.UntilStart.Seconds(), st.UntilEnd.Seconds(),
				st.UntilGone.Seconds())
		case "open": // call, limit
			var limit, epoch int64
			limit, err = strconv.ParseInt(args[1], 10, 64)
			require.NoError(t, err)
			var opened bool
			epoch, opened, err = s.OpenAs(ctx, args[0], spec(limit))
			reply = fmt.Sprintf("%d opened by it: %v", epoch, opened)
		case "close":
			reply, err = "closed", s.EndSale(ctx)
		}
		for known, text := range map[error]string{errs.ErrCorrupt: "corrupt", errs.ErrOverflow: "overflow",
			stock.ErrNotOpen: "not open"} {
			if errors.Is(err, known) {
				return "error: " + text
			}
		}
		require.NoError(t, err)
		return reply
	}
}

// claimants are those of a row: b*3 is b three times.
func claimants(words []string) (all []string) {
	for _, word := range words {
		who, times, _ := strings.Cut(word, "*")
		n, _ := strconv.Atoi(times)
		for range max(n, 1) {
			all = append(all, who)
		}
	}
	return all
}

// answers is grants as text: "granted 1, sold out 0, replayed 1 three times" with a number for three.
func answers(gs []stock.Grant) string {
	var out []string
	for i, times := 0, 1; i < len(gs); i++ {
		text := string(gs[i].Outcome) + " " + strconv.FormatInt(gs[i].Ordinal, 10)
		if i+1 < len(gs) && gs[i+1] == gs[i] && len(gs) > 8 {
			times++
			continue
		}
		if times > 1 {
			text += " " + strconv.Itoa(times) + " times"
		}
		out, times = append(out, text), 1
	}
	return strings.Join(out, ", ")
}
