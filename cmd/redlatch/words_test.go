//go:build unix

package main

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// alone runs redlatch without a server.
func alone(args ...string) result {
	var out, messages bytes.Buffer
	code := execute(append([]string{"--redis", "redis://127.0.0.1:1"}, args...),
		streams{strings.NewReader(""), &out, &messages})
	return result{code, out.String(), messages.String()}
}

func TestAMistypedCommandIsRefusedWithWhatItMayHaveBeen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"inspekt"}, `unknown command "inspekt" for redlatch (did you mean inspect?); see redlatch help`},
		{[]string{"help", "inspekt"}, `unknown command "inspekt" for redlatch (did you mean inspect?); see redlatch help`},
		{[]string{"help", "nosuch"}, `unknown command "nosuch" for redlatch; see redlatch help`},
		{[]string{"stock", "delet", "a"},
			`unknown command "delet" for redlatch stock (did you mean delete?); see redlatch help stock`},
		{[]string{"help", "stock", "nosuch"}, `unknown command "nosuch" for redlatch stock`},
		{[]string{"completion", "nosuch"}, `unknown command "nosuch" for redlatch completion`},
		{[]string{"check", "me"}, `redlatch check takes no arguments`},
	} {
		r := alone(tt.args...)
		require.Equal(t, exitUsage, r.code, "%v", tt.args)
		require.Contains(t, r.err, tt.says, "%v", tt.args)
		require.Empty(t, r.out, "%v", tt.args)
	}
	for _, args := range [][]string{{"help"}, {"help", "stock", "open"}, {"stock"}, {"connection"}} {
		r := alone(args...)
		require.Zero(t, r.code, "%v: %s", args, r.err)
		require.NotEmpty(t, r.out, "%v", args)
	}
}

func TestMessagesAreShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70_000)
	for _, args := range [][]string{{long}, {"inspect", long}, {"run", "--lock", long, "--", "true"},
		{"run", "--lock", "a", "--label", long, "--", "true"},
		{"stock", "status", long}, {"run", "--lock", "a", "--wait", long, "--", "true"},
		{"inspect", strings.Repeat("x ", 35_000)}} {
		r := alone(args...)
		require.Equal(t, exitUsage, r.code, "%.20v", args)
		require.Less(t, len(r.err), 2100, "%.20v", args)
		require.NotEmpty(t, r.err)
	}
	require.Contains(t, alone("inspect", long).err, "has 70000 bytes", "the reason is not cut off")
}

// What the library calls by the fields of its options has other names here.
func TestMessagesNameFlagsAndNoFieldsOfTheLibrary(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	web := httptest.NewUnstartedServer(nil) // which ends each handshake that it does not like
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.StartTLS()
	t.Cleanup(web.Close)
	secure := web.Listener.Addr().String()
	// which takes 5 s to find out
	require.Equal(t, "invalid option: --redis must begin with redis://: the server at h:1 speaks without TLS",
		words(errors.New("pubsub: invalid option: TLSConfig is set, and the server at h:1 speaks without TLS")))
	for _, tt := range []struct {
		url  string
		code int
		says string
	}{
		{"rediss://" + secure, exitUsage, "--tls-ca"},
		{"redis://" + secure, exitUsage, "--redis must begin with rediss://"},
		{"redis://nobody:wrong@" + s.Addr(), exitDenied, "REDLATCH_PASSWORD"},
		{"redis://" + s.Addr() + "/99", exitUsage, "the path of --redis"},
		{"redis://" + s.Addr() + "?addr=127.0.0.1:1", exitUsage, "refuses what --redis says"},
		{"redis://" + s.Addr() + "?master_set=nobody", exitUsage, "what --redis says"},
	} {
		for _, args := range [][]string{{"inspect", "a"}, {"check"}} {
			var out, messages bytes.Buffer
			code := execute(append([]string{"--redis", tt.url, "--call-timeout=5s"}, args...),
				streams{strings.NewReader(""), &out, &messages})
			text := messages.String()
			if args[0] == "check" {
				tt.code, text = exitConflict, out.String()
			}
			require.Equal(t, tt.code, code, "%s: %s", tt.url, text)
			require.Contains(t, text, tt.says, tt.url)
			for _, field := range []string{"TLSConfig", "SelectDB", "MasterSet", "InitAddress", "Username", "pubsub"} {
				require.NotContains(t, text, field, tt.url)
			}
		}
	}
}

func TestNamesAndFlagsAreCompleted(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	red := open(t, s)
	h, err := red.Locks().Reentrant("report:{a}").Lock(t.Context())
	keep(t, err, h.Unlock)
	p, err := red.Semaphores().Semaphore("slots", 2).Acquire(t.Context(), 1)
	keep(t, err, p.Release)
	for _, name := range []string{"shoes", "shirts"} {
		require.Zero(t, here(s, "", "stock", "open", name, "--limit", "1", "--open-for", "1h").code)
	}
	s.Ask(t, "HSET", "rc:{shoes}:u", "a", "1")
	s.Ask(t, "HSET", "app:hash", "a", "1")
	const noFiles, files = ":4\n", ":0\n"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"inspect", ""}, "report:{a}\nslots\n" + noFiles},
		{[]string{"inspect", "slots", ""}, "report:{a}\n" + noFiles},
		{[]string{"unlock", "--force", "r"}, "report:{a}\n" + noFiles},
		{[]string{"unlock", "report:{a}", ""}, noFiles},
		{[]string{"run", "--lock", "re"}, "report:{a}\n" + noFiles},
		{[]string{"run", "--semaphore", "s"}, "slots\n" + noFiles},
		{[]string{"run", "--lock", "a", "--", ""}, files},
		{[]string{"elect", "boss", "--", ""}, files},
		{[]string{"stock", "status", ""}, "shirts\nshoes\n" + noFiles},
		{[]string{"stock", "end", "sho"}, "shoes\n" + noFiles},
		{[]string{"stock", "open", ""}, noFiles},
		{[]string{"check", ""}, noFiles},
		{[]string{"acl", "--only", "locks,"},
			"locks,elections\nlocks,semaphores\nlocks,counters\nlocks,limits\nlocks,stocks\nlocks,packets\nlocks,inspect\n" +
				noFiles},
	} {
		r := here(s, "", append([]string{"__complete"}, tt.args...)...)
		require.Equal(t, tt.want, r.out, "%v: %s", tt.args, r.err)
	}
	r := here(s, "", "--redis", "redis://127.0.0.1:1", "__complete", "inspect", "")
	require.Equal(t, noFiles, r.out)
}

func TestManWritesAPageForEveryCommandWithItsFlags(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	r := alone("man", dir)
	require.Zero(t, r.code, r.err)
	for page, says := range map[string][]string{
		"redlatch": {".TH REDLATCH 1 ", ".BR redlatch\\-run (1)", `\fB\-\-redis\fR`},
		"redlatch-run": {".SH NAME\nredlatch\\-run \\- run a command", `\fB\-n, \-\-nonblock\fR`, ".SH EXIT STATUS\n",
			"(default 30s)", "(default host:pid)", ".SH EXAMPLES"},
		"redlatch-stock-open": {`\fB\-\-limit\fR`, ".BR redlatch\\-stock (1)"},
		"redlatch-connection": {".SH CONNECTION\n"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, page+".1"))
		require.NoError(t, err)
		for _, s := range says {
			require.Contains(t, string(text), s, page)
		}
	}
	_, err := os.Stat(filepath.Join(dir, "redlatch-guard.1"))
	require.ErrorIs(t, err, os.ErrNotExist, "it is not for people")
	require.Equal(t, exitUsage, alone("man").code)
}

// The rights of redlatch acl are tried in internal/rights; here those of the command itself.
func TestTheUserOfAnACLLineMayInspectOrRun(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	h, err := open(t, s).Locks().Reentrant("shop:job").WithLabel("one").Lock(t.Context())
	keep(t, err, h.Unlock)
	as := func(only string) string {
		r := alone("acl", "--only", only, "--prefix", "shop:", "--user", "u-"+only)
		require.Zero(t, r.code, r.err)
		s.Ask(t, strings.Fields(r.out)...)
		return "redis://u-" + only + ":secret@" + s.Addr()
	}
	looks, works := as("inspect"), as("locks")
	r := here(s, "", "--redis", looks, "--prefix", "shop:", "inspect")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "one")
	r = run(t, looks, "run", "--prefix", "shop:", "--lock", "mine", "-n", "--", "true")
	require.Equal(t, exitDenied, r.code, r.err)
	r = run(t, works, "run", "--prefix", "shop:", "--lock", "mine", "-n", "--", "true")
	require.Zero(t, r.code, r.err)
	r = here(s, "", "--redis", works, "--prefix", "shop:", "inspect")
	require.Equal(t, exitDenied, r.code)
	require.Contains(t, r.err, "+scan")
	require.Contains(t, r.err, "redlatch acl --only inspect")
	require.Zero(t, here(s, "", "--redis", works, "--prefix", "shop:", "inspect", "job").code)
	for _, refused := range [][]string{{"--only", "lock"}, {"--only", ""}, {"--server", "redis"}, {"--user", "a b"},
		{"--user", ""},
		{"--prefix", "a b"}, {"--prefix", "}"}} {
		require.Equal(t, exitUsage, alone(append([]string{"acl"}, refused...)...).code, "%v", refused)
	}
}
