package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBadInputIsRefusedInOneLineBeforeAnyWork(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "claims.csv")
	require.NoError(t, os.WriteFile(in, []byte("a\n"), 0o600))
	for _, c := range []struct{ args, want string }{
		{"-stock 0", `invalid value "0" for flag -stock: want a whole number from 1 to 1,000,000,000`},
		{"-stock -5", `invalid value "-5" for flag -stock`},
		{"-stock 1e3", `invalid value "1e3" for flag -stock`},
		{"-stock 99999999999999999999", `"99999999999999999999" for flag -stock`},
		{"-users 0", `invalid value "0" for flag -users`},
		{"-users -1", `invalid value "-1" for flag -users`},
		{"-procs 0", `invalid value "0" for flag -procs: want a whole number from 1 to 64`},
		{"-procs 65", `invalid value "65" for flag -procs`},
		{"-procs", "flag needs an argument: -procs"},
		{"-name=", `invalid value "" for flag -name`},
		{"-name a{b}", `-name "a{b}": stock: invalid name`},
		{"-claims=", `invalid value "" for flag -claims`},
		{"-claims " + dir + "/none", "-claims " + dir + "/none: no such file or directory"},
		{"-claims " + dir, "-claims " + dir + ": is a directory"},
		{"-claims " + in + " -users 5", "-users 5 and -claims " + in},
		{"-out " + dir, "-out " + dir + ": is a directory"},
		{"-out " + dir + "/none/x", "-out " + dir + "/none/x: no such file or directory"},
		{"-out " + in + "/x", "-out " + in + "/x: not a directory"},
		{"-out -", "-out -: want a file"},
		{"-claims " + in + " -out " + in, "-out " + in + ": is the file of -claims"},
		{"-redis localhost", `"localhost" is not an address, want host:port`},
		{"-redis 127.0.0.1:0", `"127.0.0.1:0" is not an address`},
		{"-redis 127.0.0.1:6379,", `"" is not an address`},
		{"-redis redis://127.0.0.1:6379", "is not an address"},
		{"claims.csv", `unexpected argument "claims.csv"`},
		{"-users 5 more", `unexpected argument "more"`},
		{"-nonsense", "flag provided but not defined: -nonsense"},
		{"-redpacket 1.5", `invalid value "1.5" for flag -redpacket: want an amount`},
		{"-redpacket 0", `invalid value "0" for flag -redpacket`},
		{"-redpacket 0.99", "-redpacket 0.99: too little for 5,000 shares"},
		{"-redpacket 99999999 -stock 1000001", "-stock 1000001 with -redpacket"},
		{"-redpacket 10 -reserve", "-reserve and -redpacket 10.00"},
		{"-reserve=perhaps", `invalid boolean value "perhaps" for -reserve`},
		{"-rate 0", `invalid value "0" for flag -rate: want a whole number from 1 to 1,000,000`},
		{"-rate 5 -fast", "-fast and -rate 5"},
		{"-json=perhaps", `invalid boolean value "perhaps" for -json`},
	} {
		t.Run(c.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			status := program{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr}.run(strings.Fields(c.args))
			require.Equal(t, exitUsage, status)
			require.Empty(t, stdout.String())
			require.Contains(t, stderr.String(), c.want)
			require.Regexp(t, `^flashsale: [^\n]*\n$`, stderr.String())
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, left, 1, "nothing is left behind")
		})
	}
}

func TestAnAddressThatDoesNotAnswerIsNamed(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	status := program{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr}.run([]string{"-redis",
		"127.0.0.1:1", "-out", dir + "/x"})
	require.Equal(t, exitBad, status)
	require.Regexp(t, `^flashsale: cannot use Redis at 127\.0\.0\.1:1: [^\n]*refused\n$`, stderr.String())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestHelpNamesEveryFlag(t *testing.T) {
	for _, flag := range []string{"-help", "-h"} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitOK, program{stdout: &stdout, stderr: &stderr}.run([]string{flag}))
		require.Empty(t, stderr.String())
		for _, f := range []string{"redis", "stock", "users", "claims", "procs", "out", "name", "rate", "fast", "reserve",
			"redpacket", "json", "help"} {
			require.Regexp(t, `(?m)^  -`+f+` `, stdout.String())
		}
		for _, h := range headers {
			require.Regexp(t, regexp.QuoteMeta(h), stdout.String())
		}
		for line := range strings.Lines(stdout.String()) {
			require.LessOrEqual(t, len(line), 120)
		}
	}
}

func TestNumbersAreGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567",
		-1000: "-1,000", -999: "-999"} {
		require.Equal(t, want, group(n))
	}
	require.Equal(t, "1 unit", plural(1, "unit"))
	require.Equal(t, "0 units", plural(0, "unit"))
}

func TestTheWinnersFileReplacesTheOldOneWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "winners.csv")
	require.NoError(t, os.WriteFile(path, []byte("older"), 0o640))
	link := filepath.Join(dir, "link.csv")
	require.NoError(t, os.Symlink("winners.csv", link))

	w, err := openWinners(link, "")
	require.NoError(t, err)
	w.abandon()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "older", string(text))

	w, err = openWinners(link, "")
	require.NoError(t, err)
	require.NoError(t, w.write([]win{{1, "anna"}, {2, `b"o,b`}}))
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "ordinal,user\n1,anna\n2,\"b\"\"o,b\"\n", string(text))
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o640, info.Mode().Perm())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2, "the link is still one, and no other file is left")

	w, err = openWinners(os.DevNull, "")
	require.NoError(t, err)
	require.NoError(t, w.write(nil))
	info, err = os.Stat(os.DevNull)
	require.NoError(t, err)
	require.False(t, info.Mode().IsRegular())
}
