package redpacket_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest/table"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

// TestPacket_EachRow_DoesWhatItSays runs the tables in testdata/scripts. Each call has an id of its own, so that it can
// be made twice.
func TestPacket_EachRow_DoesWhatItSays(t *testing.T) {
	t.Parallel()
	table.RunAll(t, "testdata/scripts", table.How{Call: calls})
}

func calls(t *testing.T, c rueidis.Client) func(t *testing.T, name string, args []string) string {
	p := on(t, c, patient).Packet("p")
	return func(t *testing.T, name string, args []string) string {
		t.Helper()
		var got []redpacket.Share
		var epoch int64
		var err error
		switch name {
		case "grab": // call, users
			got, err = p.GrabAs(ctx, args[0], args[1:]...)
		case "refund": // call
			got = make([]redpacket.Share, 1)
			got[0], err = p.RefundAs(ctx, args[0])
		case "send": // call, how many shares were sent before, how many in a part, the shares up to this part
			var n []int64
			for _, arg := range args[1:] {
				v, err := strconv.ParseInt(arg, 10, 64)
				require.NoError(t, err)
				n = append(n, v)
			}
			epoch, err = p.SendAs(ctx, args[0], packet(60, 3), n[2:], int(n[0]), int(n[1]))
		}
		for known, text := range map[error]string{errs.ErrCorrupt: "corrupt", redpacket.ErrNotEnded: "not ended",
			redpacket.ErrNoPacket: "no packet", errs.ErrAlreadyOpen: "already open",
			redpacket.ErrSending: "another call sends"} {
			if errors.Is(err, known) {
				return fmt.Sprintf("error: %s, epoch %d", text, epoch)
			}
		}
		if err != nil {
			return "error: " + err.Error()
		}
		if name == "send" {
			return fmt.Sprintf("sent, epoch %d", epoch)
		}
		var out []string
		for _, s := range got {
			out = append(out, fmt.Sprintf("%s %d: %d", s.Outcome, s.Ordinal, s.Cents))
		}
		return fmt.Sprintf("%s, %d shares %d cents left, epoch %d", strings.Join(out, ", "), got[0].Left, got[0].LeftCents,
			got[0].Epoch)
	}
}
