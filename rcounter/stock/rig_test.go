package stock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/salebook"
	"github.com/redlatch/redlatch/rcounter/stock"
)

func TestMain(m *testing.M) { redistest.Main(m, nil) }

var ctx = context.Background()

// exact are options for tests whose clock jumps, or that count what is sent: every order asks the server.
var exact = stock.Options{CallTimeout: 10 * time.Second, SoldOutTrust: -1}

// on makes a client of the library on c.
func on(t testing.TB, c rueidis.Client, o stock.Options) *stock.Client {
	t.Helper()
	if o.RetryTimeout == 0 {
		o.RetryTimeout = redistest.Retries(o.CallTimeout)
	}
	client := redistest.NoError(stock.New(rig.Hub(t, c), o))(t)
	t.Cleanup(func() { client.Close(ctx) })
	return client
}

// spec is an opening that is open for as long as a test may last.
func spec(limit int64) stock.Spec {
	return stock.Spec{Limit: limit, OpenFor: time.Hour, Retain: time.Hour, Ledger: true}
}

func opened(t testing.TB, c *stock.Client, name string, o stock.Spec) *stock.Sale {
	t.Helper()
	s := c.Sale(name)
	require.NoError(t, s.Open(ctx, o))
	return s
}

// openedWithBook opens a sale of five units, of which a book has the ledger.
func openedWithBook(t testing.TB, c rueidis.Client) (*stock.Sale, *book) {
	t.Helper()
	b, o := &book{}, exact
	o.Books = func(string) stock.Book { return b }
	return opened(t, on(t, c, o), "s", spec(5)), b
}

// book is a database in memory.
type book = salebook.Book

// snapshot returns what sets the keys of a sale back to what they are now, as a failover to a replica does that has
// heard of nothing since.
func snapshot(t testing.TB, c rueidis.Client, s *stock.Sale) (setBack func()) {
	t.Helper()
	var commands [][]string
	for i, key := range s.Keys()[:6] {
		ms := rig.Number(t, c, "PTTL", key)
		if ms < 0 {
			continue
		}
		switch i {
		case 2:
			scores := redistest.NoError(rig.Raw(c, "ZRANGE", key, "0", "-1", "WITHSCORES").AsZScores())(t)
			for _, z := range scores {
				commands = append(commands, []string{"ZADD", key, rig.Dec(int64(z.Score)), z.Member})
			}
		case 4:
			entries := redistest.NoError(rig.Raw(c, "XRANGE", key, "-", "+").AsXRangeSlices())(t)
			for _, e := range entries {
				command := []string{"XADD", key, e.ID}
				for _, f := range e.FieldValues {
					command = append(command, f.Field, f.Value)
				}
				commands = append(commands, command)
			}
		case 5:
			list := redistest.NoError(rig.Raw(c, "LRANGE", key, "0", "-1").AsStrSlice())(t)
			commands = append(commands, append([]string{"RPUSH", key}, list...))
		default:
			for field, value := range rig.Hash(t, c, key) {
				commands = append(commands, []string{"HSET", key, field, value})
			}
		}
		commands = append(commands, []string{"PEXPIRE", key, rig.Dec(ms)})
	}
	return func() {
		rig.Must(t, c, append([]string{"DEL"}, s.Keys()[:6]...)...)
		for _, command := range commands {
			rig.Must(t, c, command...)
		}
	}
}

// wire sends scripts several times, as a network may, and hands out the last reply. off, if it returns true, has a
// request answered by an error in its place. late keeps copies of the requests that it picks.
type wire struct {
	rueidis.Client
	copies int
	off    func(args []string) bool
	late   func(args []string) bool
	kept   [][]string
}

func (w *wire) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	args := slices.Clone(cmd.Commands())
	if w.off != nil && w.off(args) {
		return w.Client.Do(ctx, w.B().Eval().Script("return redis.error_reply('ERR broken off')").Numkeys(0).Build())
	}
	if w.late != nil && w.late(args) {
		w.kept = append(w.kept, args)
	}
	cmd = cmd.Pin()
	for range w.copies - 1 {
		w.Client.Do(ctx, cmd)
	}
	return w.Client.Do(ctx, cmd)
}

// deliver sends a request that was kept once more.
func (w *wire) deliver(args []string) {
	w.Client.Do(ctx, w.B().Arbitrary(args...).Build())
}
