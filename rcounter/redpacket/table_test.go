package redpacket_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/stretchr/testify/require"
)

// packetState is what the three keys of a packet hold. Times are ms from the server's now.
type packetState struct {
	n, total, taken, given int64
	state                  int
	end, gone              int64
	refund                 string // "cents by", "" before one
	shares                 string // those left
	users                  map[string]string
}

// handing is a packet in the middle of its time.
func handing(n, total, taken, given int64, shares string, users ...string) packetState {
	st := packetState{n: n, total: total, taken: taken, given: given, state: 1, end: hour, gone: 2 * hour, shares: shares,
		users: map[string]string{}}
	for i := 0; i < len(users); i += 2 {
		st.users[users[i]] = users[i+1]
	}
	return st
}

func (st packetState) ended() packetState   { st.end = -hour / 2; return st }
func (st packetState) over() packetState    { st.end, st.gone = -hour/2, -hour/4; return st }
func (st packetState) sending() packetState { st.state = 0; return st }
func (st packetState) refunded(refund string) packetState {
	st.state, st.refund, st.shares = 2, refund, ""
	return st.ended()
}

func backIn(st packetState) packetState { st.end = hour; return st }

func (st packetState) write(t testing.TB, c rueidis.Client) {
	t.Helper()
	now := serverNow(t, c)
	must(t, c, "DEL", "rc:{p}:p", "rc:{p}:a", "rc:{p}:g")
	must(t, c, "HSET", "rc:{p}:p", "n", dec(st.n), "total", dec(st.total), "sum", dec(st.total), "taken", dec(st.taken),
		"given", dec(st.given),
		"state", strconv.Itoa(st.state), "end", dec(now+st.end), "gone", dec(now+st.gone), "epoch", dec(testEpoch), "token",
		"T")
	if st.refund != "" {
		f := strings.Fields(st.refund)
		must(t, c, "HSET", "rc:{p}:p", "refund", f[0], "by", f[1])
	}
	for _, s := range strings.Fields(st.shares) {
		must(t, c, "RPUSH", "rc:{p}:a", s)
	}
	for u, r := range st.users {
		must(t, c, "HSET", "rc:{p}:g", u, r)
	}
	for _, k := range []string{"p", "a", "g"} {
		must(t, c, "PEXPIRE", "rc:{p}:"+k, "7200000")
	}
}

// packetCounts is what a script may change, as one comparable text.
func packetCounts(t testing.TB, c rueidis.Client) string {
	t.Helper()
	h := hash(t, c, "rc:{p}:p")
	left, err := raw(c, "LRANGE", "rc:{p}:a", "0", "-1").AsStrSlice()
	require.NoError(t, err)
	return fmt.Sprintf("taken %s given %s state %s refund %s shares %s users %v", h["taken"], h["given"], h["state"],
		strings.TrimSpace(h["refund"]+" "+h["by"]), strings.Join(left, " "), hash(t, c, "rc:{p}:g"))
}

func packetCountsOf(st packetState) string {
	if st.gone < 0 { // whoever comes first removes it
		return "taken  given  state  refund  shares  users map[]"
	}
	return fmt.Sprintf("taken %d given %d state %d refund %s shares %s users %v", st.taken, st.given, st.state, st.refund,
		st.shares, st.users)
}

// told is shares as text: "granted 1: 30, sold out".
func told(shares []redpacket.Share) string {
	var out []string
	for _, s := range shares {
		text := string(s.Outcome)
		if s.Won() {
			text += fmt.Sprintf(" %d: %d", s.Ordinal, s.Cents)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestGrabTable(t *testing.T) {
	t.Parallel()
	one := handing(3, 60, 1, 10, "20 30", "a", "1;10;A")
	none := handing(2, 30, 2, 30, "", "a", "1;10;A", "b", "2;20;B")
	last := int64(maxTotal)
	cases := []struct {
		name  string
		state packetState
		call  string
		users string // in one batch
		want  string
		left  string // "shares cents"
		err   error
		after packetState
	}{
		{"a share", one, "B", "b", "granted 2: 20", "1 30", nil, handing(3, 60, 2, 30, "30", "a", "1;10;A", "b", "2;20;B")},
		{"the same user", one, "B", "a", "replayed 1: 10", "2 50", nil, one},
		{"the same call", one, "A", "a", "granted 1: 10", "2 50", nil, one},
		{"none left", none, "C", "c", "sold out", "0 0", nil, none},
		{"who took the last one, again", none, "C", "b", "replayed 2: 20", "0 0", nil, none},
		{"the call that took the last one, again", none, "B", "b", "granted 2: 20", "0 0", nil, none},
		{"over", one.ended(), "B", "b a", "ended, replayed 1: 10", "2 50", nil, one},
		{"over and none left", none.ended(), "C", "c", "ended", "0 0", nil, none},
		{"refunded", one.refunded("50 R"), "B", "b a", "ended, replayed 1: 10", "0 0", nil, one.refunded("50 R")},
		{"refunded, and then the clock was set back", backIn(one.refunded("50 R")), "B", "b a", "ended, replayed 1: 10",
			"0 0", nil, one.refunded("50 R")},
		{"being sent", handing(3, 60, 0, 0, "20 30").sending(), "B", "b", "not open", "0 0", nil,
			handing(3, 60, 0, 0, "20 30").sending()},
		{"retained no longer", one.over(), "B", "a b", "not open, not open", "0 0", nil, one.over()},
		{"a batch", one, "B", "b a c d", "granted 2: 20, replayed 1: 10, granted 3: 30, sold out", "0 0", nil,
			handing(3, 60, 3, 60, "", "a", "1;10;A", "b", "2;20;B", "c", "3;30;B")},
		{"one user twice in a batch", one, "B", "b b a b", "granted 2: 20, replayed 2: 20, replayed 1: 10, replayed 2: 20",
			"1 30", nil,
			handing(3, 60, 2, 30, "30", "a", "1;10;A", "b", "2;20;B")},
		{"shares of nothing are shares", handing(2, 5, 0, 0, "0 5"), "B", "b", "granted 1: 0", "1 5", nil,
			handing(2, 5, 1, 0, "5", "b", "1;0;B")},
		{"the largest amount", handing(2, last, 0, 0, dec(last-1)+" 1"), "B", "b c",
			"granted 1: 9007199254740990, granted 2: 1", "0 0", nil,
			handing(2, last, 2, last, "", "b", "1;9007199254740990;B", "c", "2;1;B")},
		{"a record lost", handing(3, 60, 1, 10, "20 30"), "B", "b", "", "", errs.ErrCorrupt,
			handing(3, 60, 1, 10, "20 30")},
		{"a record too many", handing(3, 60, 0, 0, "10 20 30", "x", "1;10;X"), "B", "b", "", "", errs.ErrCorrupt,
			handing(3, 60, 0, 0, "10 20 30", "x", "1;10;X")},
		{"the shares lost", handing(3, 60, 1, 10, "", "a", "1;10;A"), "B", "a", "", "", errs.ErrCorrupt,
			handing(3, 60, 1, 10, "", "a", "1;10;A")},
		{"a share too many", handing(2, 30, 1, 10, "20 30", "a", "1;10;A"), "B", "b", "", "", errs.ErrCorrupt,
			handing(2, 30, 1, 10, "20 30", "a", "1;10;A")},
		{"more than the total", handing(2, 30, 1, 10, "21", "a", "1;10;A"), "B", "b", "", "", errs.ErrCorrupt,
			handing(2, 30, 1, 10, "21", "a", "1;10;A")},
		{"less than the total at the end", handing(2, 30, 1, 10, "19", "a", "1;10;A"), "B", "b", "", "",
			errs.ErrCorrupt, handing(2, 30, 1, 10, "19", "a", "1;10;A")},
		{"a record that is none", handing(2, 30, 1, 10, "20", "a", "?"), "B", "b a", "", "", errs.ErrCorrupt,
			handing(2, 30, 1, 10, "20", "a", "?")},
		{"a share that is no number", handing(2, 30, 1, 10, "x", "a", "1;10;A"), "B", "b", "", "", errs.ErrCorrupt,
			handing(2, 30, 1, 10, "x", "a", "1;10;A")},
	}
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		p := on(t, c, patient).Packet("p")
		for _, tc := range cases {
			tc.state.write(t, c)
			for range 2 { // the second time is the script run twice
				got, err := p.GrabAs(ctx, tc.call, strings.Fields(tc.users)...)
				require.ErrorIs(t, err, tc.err, tc.name)
				if strings.Contains(tc.users, "b b") && len(got) > 1 { // within a call only the first is its own
					require.Equal(t, got[0].Ordinal, got[1].Ordinal, tc.name)
				} else {
					require.Equal(t, tc.want, told(got), tc.name)
				}
				if err == nil && tc.left != "" {
					require.Equal(t, tc.left, fmt.Sprintf("%d %d", got[0].Left, got[0].LeftCents), tc.name)
				}
				require.Equal(t, packetCountsOf(tc.after), packetCounts(t, c), tc.name)
			}
			requireEnds(t, c)
		}
	})
}

func TestRefundTable(t *testing.T) {
	t.Parallel()
	some := handing(3, 60, 1, 10, "20 30", "a", "1;10;A")
	all := handing(1, 10, 1, 10, "", "a", "1;10;A")
	cases := []struct {
		name  string
		state packetState
		call  string
		want  redpacket.Share
		err   error
		after packetState
	}{
		{"what is left", some.ended(), "R",
			redpacket.Share{Outcome: redpacket.Granted, Cents: 50, Left: 2, Epoch: testEpoch}, nil, some.refunded("50 R")},
		{"nothing is left", all.ended(), "R", redpacket.Share{Outcome: redpacket.Granted, Epoch: testEpoch}, nil,
			all.refunded("0 R")},
		{"again", some.refunded("50 R"), "S",
			redpacket.Share{Outcome: redpacket.Replayed, Cents: 50, Left: 2, Epoch: testEpoch}, nil, some.refunded("50 R")},
		{"not over", some, "R", redpacket.Share{}, redpacket.ErrNotEnded, some},
		{"not over, and empty", all, "R", redpacket.Share{}, redpacket.ErrNotEnded, all},
		{"being sent", some.sending(), "R", redpacket.Share{}, redpacket.ErrNoPacket, some.sending()},
		{"retained no longer", some.over(), "R", redpacket.Share{}, redpacket.ErrNoPacket, some.over()},
		{"shares lost", handing(3, 60, 1, 10, "20", "a", "1;10;A").ended(), "R", redpacket.Share{}, errs.ErrCorrupt,
			handing(3, 60, 1, 10, "20", "a", "1;10;A")},
		{"records lost", handing(3, 60, 1, 10, "20 30").ended(), "R", redpacket.Share{}, errs.ErrCorrupt,
			handing(3, 60, 1, 10, "20 30")},
		{"more taken than there was", handing(2, 10, 1, 20, "5", "a", "1;20;A").ended(), "R", redpacket.Share{},
			errs.ErrCorrupt, handing(2, 10, 1, 20, "5", "a", "1;20;A")},
	}
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		p := on(t, c, patient).Packet("p")
		for _, tc := range cases {
			tc.state.write(t, c)
			for range 2 {
				got, err := p.RefundAs(ctx, tc.call)
				require.ErrorIs(t, err, tc.err, tc.name)
				require.Equal(t, tc.want, got, tc.name)
				require.Equal(t, packetCountsOf(tc.after), packetCounts(t, c), tc.name)
			}
			requireEnds(t, c)
		}
		must(t, c, "DEL", "rc:{p}:p", "rc:{p}:a", "rc:{p}:g")
		_, err := p.Refund(ctx)
		require.ErrorIs(t, err, redpacket.ErrNoPacket)
		require.Empty(t, keys(t, c), "nothing is created")
	})
}

func TestSendTable(t *testing.T) {
	t.Parallel()
	o := packet(60, 3)
	shares := []int64{10, 20, 30}
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		p := on(t, c, patient).Packet("p")
		fresh := func() { must(t, c, "DEL", "rc:{p}:p", "rc:{p}:a", "rc:{p}:g") }
		notOpen := func(what string) {
			t.Helper()
			s, err := p.Grab(ctx, "a")
			require.NoError(t, err, what)
			require.Equal(t, redpacket.NotOpen, s.Outcome, what)
			requireEnds(t, c)
		}

		// in one part and in several, every part sent twice
		for _, part := range []int{1, 2, 3} {
			fresh()
			var epoch int64
			for at := 0; at < 3; at += part {
				for range 2 {
					var err error
					epoch, err = p.SendAs(ctx, "A", o, shares[:min(3, at+part)], at, part)
					require.NoError(t, err)
				}
				if at+part < 3 {
					require.Zero(t, epoch)
					notOpen("half sent")
				}
			}
			require.Positive(t, epoch)
			again, err := p.SendAs(ctx, "A", o, shares, 0, part)
			require.NoError(t, err)
			require.Equal(t, epoch, again, "all of it again")
			require.Equal(t, packetCountsOf(handing(3, 60, 0, 0, "10 20 30")), packetCounts(t, c))
			requireEnds(t, c)
			require.Greater(t, number(t, c, "PTTL", "rc:{p}:a"), int64(hour))

			standing, err := p.SendAs(ctx, "B", o, shares, 0, part)
			require.ErrorIs(t, err, errs.ErrAlreadyOpen)
			require.Equal(t, epoch, standing)
			require.Equal(t, packetCountsOf(handing(3, 60, 0, 0, "10 20 30")), packetCounts(t, c))
		}

		// a duplicate of an early part that comes after shares were taken
		_, err := p.Grab(ctx, "ann")
		require.NoError(t, err)
		_, err = p.SendAs(ctx, "A", o, shares[:1], 0, 1)
		require.NoError(t, err)
		require.EqualValues(t, 2, number(t, c, "LLEN", "rc:{p}:a"))

		fresh()
		_, err = p.SendAs(ctx, "A", o, shares[:2], 0, 2)
		require.NoError(t, err)
		_, err = p.SendAs(ctx, "B", o, shares, 0, 3)
		require.ErrorIs(t, err, redpacket.ErrSending)
		must(t, c, "DEL", "rc:{p}:a")
		_, err = p.SendAs(ctx, "A", o, shares, 2, 1)
		require.ErrorContains(t, err, "unavailable: the parts of", "the list is gone")
		notOpen("the list is gone")
		fresh()
		_, err = p.SendAs(ctx, "A", o, shares, 2, 1)
		require.ErrorContains(t, err, "unavailable: the parts of", "all of it is gone")
		require.Empty(t, keys(t, c), "and nothing is created")

		_, err = p.SendAs(ctx, "A", o, []int64{10, 20, 31}, 0, 3)
		require.ErrorIs(t, err, errs.ErrCorrupt, "another sum")
		require.Empty(t, keys(t, c))

		handing(3, 60, 1, 10, "20 30", "a", "1;10;A").write(t, c)
		must(t, c, "DEL", "rc:{p}:p")
		_, err = p.SendAs(ctx, "A", o, shares, 0, 3)
		require.ErrorIs(t, err, errs.ErrCorrupt, "what is left of a lost packet")
		must(t, c, "DEL", "rc:{p}:a")
		_, err = p.SendAs(ctx, "A", o, shares, 0, 3)
		require.ErrorIs(t, err, errs.ErrCorrupt)
		must(t, c, "HSET", "rc:{p}:p", "x", "y")
		_, err = p.SendAs(ctx, "A", o, shares, 0, 3)
		require.ErrorIs(t, err, errs.ErrCorrupt, "a hash that is no packet")

		handing(3, 60, 1, 10, "20 30", "a", "1;10;A").over().write(t, c)
		_, err = p.SendAs(ctx, "A", o, shares, 0, 3)
		require.NoError(t, err, "over, and not yet removed")
		require.Equal(t, packetCountsOf(handing(3, 60, 0, 0, "10 20 30")), packetCounts(t, c))
		requireEnds(t, c)
	})
}

// What a packet leaves outlives its hash by an hour, as that of a stock does, and is told from what was lost in the
// same way.
func TestTheNextCallRemovesWhatARedPacketLeavesExceptLosses(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		c := srv.Client(t)
		p := on(t, c, patient).Packet("p")
		verbs := packetVerbs(p)
		leaves := func(ms map[string]int64) {
			handing(3, 60, 1, 10, "20 30", "a", "1;10;A").write(t, c)
			must(t, c, "DEL", "rc:{p}:p")
			for k, ms := range ms {
				if ms < 0 {
					must(t, c, "PERSIST", "rc:{p}:"+k)
				} else {
					must(t, c, "PEXPIRE", "rc:{p}:"+k, dec(ms))
				}
			}
		}
		for verb, call := range verbs {
			leaves(map[string]int64{"a": hour, "g": hour})
			if err := call(); verb == "Send" {
				require.NoError(t, err)
				require.Zero(t, number(t, c, "HLEN", "rc:{p}:g"), "sent over what is over")
				require.EqualValues(t, 2, number(t, c, "LLEN", "rc:{p}:a"))
				require.LessOrEqual(t, number(t, c, "PTTL", "rc:{p}:p")+hour, number(t, c, "PTTL", "rc:{p}:a")+1000,
					"the shares outlive the packet")
				continue
			} else if verb == "Refund" {
				require.ErrorIs(t, err, redpacket.ErrNoPacket)
			} else {
				require.NoError(t, err, verb)
			}
			require.Empty(t, keys(t, c), verb)
		}
		for what, ms := range map[string]map[string]int64{
			"lost while shares were taken":    {"a": hour + 60_000, "g": hour + 60_000},
			"the ends of all were taken off":  {"a": -1, "g": -1},
			"the shares' end was taken off":   {"a": -1, "g": hour},
			"the users' end was taken off":    {"a": hour, "g": -1},
			"the users' end was put off":      {"a": hour, "g": hour + 60_000},
			"a user's record without its end": {"a": 0, "g": -1}, // PEXPIRE 0 deletes
		} {
			for verb, call := range verbs {
				leaves(ms)
				before := keys(t, c)
				err := call()
				require.ElementsMatch(t, before, keys(t, c), "%s: %s", what, verb)
				if verb == "Send" {
					require.ErrorIs(t, err, errs.ErrCorrupt, what)
				}
			}
			s, err := p.Grab(ctx, "b")
			require.NoError(t, err)
			require.Equal(t, redpacket.NotOpen, s.Outcome, what)
			// a late copy of a part of the sending that was lost
			_, err = p.SendAs(ctx, "T", packet(60, 3), []int64{10, 20, 30}, 2, 1)
			require.ErrorIs(t, err, errs.ErrCorrupt, what)
		}
		// a late copy of a part, when all is over: it stores nothing
		leaves(map[string]int64{"a": hour, "g": hour})
		_, err := p.SendAs(ctx, "T", packet(60, 3), []int64{10, 20, 30}, 2, 1)
		require.ErrorContains(t, err, "unavailable: the parts of")
		require.Empty(t, keys(t, c))
	})
}

// One that was sent in several parts is big enough to be worth a timer.
func TestTheProcessThatSentABigRedPacketRemovesWhatItLeaves(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client(t)
	o := packet(10_000, 4000)
	o.OpenFor, o.Retain = 100*time.Millisecond, 100*time.Millisecond
	sent(t, on(t, c, patient), "p", o)
	redistest.Eventually(t, time.Minute, "nothing is left", func() bool { return len(keys(t, c)) == 0 })
}
