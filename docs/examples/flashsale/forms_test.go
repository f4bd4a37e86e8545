//go:build unix

package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// requireUnits is requireFair for ordinals that are not dense.
func requireUnits(t *testing.T, wins []win, n int) {
	t.Helper()
	require.Len(t, wins, n)
	users, units := map[string]bool{}, map[int64]bool{}
	for _, w := range wins {
		require.False(t, users[w.user], "%q twice", w.user)
		require.False(t, units[w.ordinal], "%d twice", w.ordinal)
		users[w.user], units[w.ordinal] = true, true
	}
}

func TestAReservedSaleSellsEveryUnitThoughWorkersAreKilled(t *testing.T) {
	s := redistest.Start(t)
	k := &killer{r: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)), alive: map[int]*os.Process{}, early: 4,
		every: 500}
	r := sellAll(t, program{tune: func(s *sale) { s.started, s.onAnswer = k.started, k.answered }},
		"-redis", s.Addr(), "-users", "2000", "-stock", "1500", "-reserve")
	k.wg.Wait()
	require.Equal(t, exitOK, r.status)
	require.Positive(t, k.kills.Load())
	require.Equal(t, []int64{2000, 1500, 500}, []int64{r.Claims, r.Winners, r.SoldOut})
	require.Equal(t, "reserve and confirm", r.Form)
	requireUnits(t, r.out, 1500) // units are numbered when they are sold, so by now 1 to 1500
	requireFair(t, r.out, 1, 1500)

	r = sellAll(t, program{stdin: strings.NewReader(crowdCSV(1, 5))}, "-redis", s.Addr(), "-claims", "-", "-stock", "4",
		"-reserve", "-name", "kept")
	require.Equal(t, exitOK, r.status)
	r = sellAll(t, program{stdin: strings.NewReader(crowdCSV(1, 5))}, "-redis", s.Addr(), "-claims", "-", "-reserve",
		"-name", "kept")
	require.Equal(t, exitOK, r.status)
	require.Equal(t, []int64{0, 4, 1, 4}, []int64{r.Winners, r.Already, r.SoldOut, r.SoldBefore})
}

func TestASaleOnAClusterSellsItsUnitsThoughWorkersAreKilled(t *testing.T) {
	s := redistest.Cluster(t)
	k := &killer{r: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)), alive: map[int]*os.Process{}, early: 4,
		every: 600}
	r := sellAll(t, program{tune: func(s *sale) { s.started, s.onAnswer = k.started, k.answered }},
		"-redis", strings.Join(s.Addrs, ","), "-users", "2000", "-stock", "1300")
	k.wg.Wait()
	require.Equal(t, exitOK, r.status)
	require.Equal(t, []int64{2000, 1300, 700}, []int64{r.Claims, r.Winners, r.SoldOut})
	requireUnits(t, r.out, 1300)
}

func TestARedPacketsSaleGivesOutTheWholeAmount(t *testing.T) {
	s := redistest.Start(t)
	k := &killer{r: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)), alive: map[int]*os.Process{}, early: 4,
		every: 500}
	r := sellAll(t, program{tune: func(s *sale) { s.started, s.onAnswer = k.started, k.answered }},
		"-redis", s.Addr(), "-users", "2000", "-stock", "1500", "-redpacket", "888.88")
	k.wg.Wait()
	require.Equal(t, exitOK, r.status)
	require.Equal(t, []int64{2000, 1500, 500, 88888}, []int64{r.Claims, r.Winners, r.SoldOut, r.Cents})
	requireFair(t, r.out, 1, 1500)

	// the amounts in the file are those of the packet, in this run and in the next
	var stdout, stderr bytes.Buffer
	out := filepath.Join(t.TempDir(), "winners.csv")
	status := program{stdin: strings.NewReader(crowdCSV(1, 30)), stdout: &stdout, stderr: &stderr}.run([]string{"-redis",
		s.Addr(), "-claims", "-", "-stock", "50",
		"-redpacket", "100", "-name", "gift", "-out", out})
	require.Equal(t, exitOK, status, "%s", stderr.String())
	first := centsIn(t, out)
	require.Regexp(t, `(?m)^sold as +red packet of 100.00$`, stdout.String())
	require.Regexp(t, `(?m)^amounts won +`+money(first)+`$`, stdout.String())
	r = sellAll(t, program{stdin: strings.NewReader(crowdCSV(21, 80))}, "-redis", s.Addr(), "-claims", "-", "-redpacket",
		"100", "-name", "gift")
	require.Equal(t, exitOK, r.status)
	require.Equal(t, []int64{60, 20, 10, 30, 30, 10_000 - first},
		[]int64{r.Claims, r.Winners, r.Already, r.SoldOut, r.SoldBefore, r.Cents})
	r = sellAll(t, program{stdin: strings.NewReader("u1\n")}, "-redis", s.Addr(), "-claims", "-", "-redpacket", "101",
		"-name", "gift")
	require.Equal(t, exitUsage, r.status)
	require.Contains(t, r.stderr, "-redpacket 101.00: another total: the packet is one of 100.00")
}

// centsIn adds up the third column of a winners' file.
func centsIn(t *testing.T, path string) (sum int64) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	rows := csv.NewReader(f)
	header, err := rows.Read()
	require.NoError(t, err)
	require.Equal(t, []string{"ordinal", "user", "cents"}, header)
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return sum
		}
		require.NoError(t, err)
		n, err := strconv.ParseInt(row[2], 10, 64)
		require.NoError(t, err)
		require.Positive(t, n)
		sum += n
	}
}

func TestEveryFormWorksOnTheEmbeddedServer(t *testing.T) {
	for _, flags := range [][]string{{"-reserve"}, {"-redpacket", "12.34"}} {
		r := sellAll(t, program{}, append(flags, "-users", "300", "-stock", "40", "-procs", "2")...)
		require.Equal(t, exitOK, r.status)
		require.Equal(t, []int64{300, 40, 260}, []int64{r.Claims, r.Winners, r.SoldOut})
		requireUnits(t, r.out, 40)
	}
}

// The check of the amounts is a check.
func TestAmountsThatDoNotAddUpAreFound(t *testing.T) {
	b := opened(sold{limit: 3, cents: 10})
	for i, user := range []string{"a", "b"} {
		c := claim{int64(i), user}
		b.took(c)
		b.answered(c, answer{outcome: granted, ordinal: int64(i + 1), cents: 30}, time.Now())
	}
	require.Empty(t, b.check(&sold{limit: 3, count: 2, last: 2, cents: 70}, true, true).faults)
	v := b.check(&sold{limit: 3, count: 2, last: 2, cents: 71}, true, true)
	require.Equal(t, []string{"the server has given out 0.61 and the winners have 0.60"}, v.faults)
	c := claim{5, "b"}
	b.took(c)
	b.answered(c, answer{outcome: replayed, ordinal: 2, cents: 31}, time.Now())
	v = b.check(&sold{limit: 3, count: 2, last: 2, cents: 70}, true, true)
	require.Equal(t, []string{`user "b" holds unit 2 of 0.30 and got the answer 0.31`}, v.faults)
}
