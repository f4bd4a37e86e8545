package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	for _, c := range []claim{{1, "a"}, {1 << 60, "two words"}, {3, "ünï"}, {4, `"%d,`}} {
		got, err := parseClaim(strings.TrimSuffix(string(appendClaim(nil, c)), "\n"))
		require.NoError(t, err)
		require.Equal(t, c, got)
	}
	for _, a := range []answer{
		{line: 1, outcome: granted, ordinal: 5, took: 3 * time.Microsecond},
		{line: 2, outcome: replayed, ordinal: 1 << 52},
		{line: 2, outcome: replayed, ordinal: 7, cents: 12345, took: time.Millisecond},
		{line: 3, outcome: soldOut, took: time.Hour},
		{line: 4, outcome: failed, err: "two\nlines and \"quotes\"", asked: true, took: time.Second},
		{line: 5, outcome: failed, err: ""},
	} {
		text := appendAnswer(nil, a)
		require.Equal(t, 1, bytes.Count(text, []byte("\n")))
		got, err := parseReply(strings.TrimSuffix(string(text), "\n"))
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
	o := opening{Opened: true, Limit: 3, Count: 1, Last: 2, Epoch: 1 << 52}
	o.Cents = 99
	got, err := parseReply(strings.TrimSuffix(string(appendOpening(nil, o)), "\n"))
	require.NoError(t, err)
	require.Equal(t, o, got)
	got, err = parseReply(strings.TrimSuffix(string(appendDead(nil, deadError{"a\nb"})), "\n"))
	require.NoError(t, err)
	require.Equal(t, deadError{"a\nb"}, got)
}

func TestHalfALineIsNoAnswer(t *testing.T) {
	for _, s := range []string{
		"", "done", "done 1", "done 1 granted", "done 1 granted 5", "done 1 granted 5 x", "done 1 granted 5 1 x",
		"done 1 granted 5 1 2 3", "done x granted 5 1", "done 1 won 5 1",
		"fail 1 0 5", "fail 1 0 5 \"half", "open", "open {", "dead", "dead x", "hello 1 2 3 4",
	} {
		_, err := parseReply(s)
		require.Error(t, err, s)
	}
	for _, s := range []string{"", "5", "x user"} {
		_, err := parseClaim(s)
		require.Error(t, err, s)
	}
}

func TestProgressIsDrawnOverItselfOnATerminalOnly(t *testing.T) {
	var b bytes.Buffer
	now := time.Now()
	c := newConsole(&b, now)
	c.progress("1 claim", now.Add(time.Second))
	require.Empty(t, b.String())
	c.progress("2 claims", now.Add(plainEvery))
	c.progress("3 claims", now.Add(plainEvery+time.Second))
	c.say("hello %d", 1)
	c.end()
	require.Equal(t, "flashsale: 2 claims\nflashsale: hello 1\n", b.String())

	b.Reset()
	c.terminal = true
	c.progress("1 claim", now)
	c.progress("2 claims", now)
	c.say("hello")
	c.end()
	require.Equal(t, "\r\x1b[?7l1 claim\x1b[K\x1b[?7h\r\x1b[?7l2 claims\x1b[K\x1b[?7h\r\x1b[Kflashsale: hello\n",
		b.String())
}

func TestAWorkersStderrIsPassedOnLineByLine(t *testing.T) {
	var b bytes.Buffer
	p := &prefixed{c: newConsole(&b, time.Now()), prefix: "worker 3"}
	for _, s := range []string{"one\ntw", "o\r\nthr", "ee"} {
		p.Write([]byte(s))
	}
	require.Equal(t, "flashsale: worker 3: one\nflashsale: worker 3: two\n", b.String())
	p.end()
	p.end()
	require.Equal(t, "flashsale: worker 3: one\nflashsale: worker 3: two\nflashsale: worker 3: three\n", b.String())
}
