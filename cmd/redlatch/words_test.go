//go:build unix

package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/redistest"
)

// alone runs redlatch without a server.
func alone(args ...string) result {
	var out, messages bytes.Buffer
	code := execute(append([]string{"--redis", "redis://127.0.0.1:1"}, args...),
		streams{strings.NewReader(""), &out, &messages})
	return result{code, out.String(), messages.String()}
}

func TestCommand_Mistyped_IsRefusedWithASuggestion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"inspekt"}, "Did you mean this?\n\tinspect"},
		{[]string{"help", "inspekt"}, "Did you mean this?\n\tinspect"},
		{[]string{"help", "nosuch"}, `unknown command "nosuch" for "redlatch"`},
		{[]string{"stock", "status", "a"}, `unknown command "status" for "redlatch stock"`},
		{[]string{"completion", "nosuch"}, `unknown command "nosuch" for "redlatch completion"`},
		{[]string{"check", "me"}, `unknown command "me" for "redlatch check"`},
	} {
		r := alone(tt.args...)
		require.Equal(t, exitUsage, r.code, "%v", tt.args)
		require.Contains(t, r.err, tt.says, "%v", tt.args)
		require.Empty(t, r.out, "%v", tt.args)
	}
	for _, args := range [][]string{{"help"}, {"help", "stock", "end"}, {"stock"}, {"connection"}} {
		r := alone(args...)
		require.Zero(t, r.code, "%v: %s", args, r.err)
		require.NotEmpty(t, r.out, "%v", args)
	}
}

func TestVersion_Program_NamesItsGo(t *testing.T) {
	require.Regexp(t, "^redlatch .*, "+regexp.QuoteMeta(runtime.Version())+"\n$", alone("--version").out)
}

func TestHelp_EveryCommand_HasAPage(t *testing.T) {
	t.Parallel()
	used := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "completion" || c.Name() == "help" {
			return
		}
		require.NotEmpty(t, c.Long, c.CommandPath())
		used++
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit((&tool{server: &server{}}).root())
	files := redistest.NoError(pages.ReadDir("help"))(t)
	require.Len(t, files, used)
}

func TestMessages_LongArguments_StayShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70_000)
	for _, args := range [][]string{{long}, {"inspect", long}, {"run", "--lock", long, "--", "true"},
		{"run", "--lock", "a", "--label", long, "--", "true"},
		{"stock", "inspect", long}, {"run", "--lock", "a", "--wait", long, "--", "true"},
		{"inspect", strings.Repeat("x ", 35_000)}} {
		r := alone(args...)
		require.Equal(t, exitUsage, r.code, "%.20v", args)
		require.Less(t, len(r.err), 2100, "%.20v", args)
		require.NotEmpty(t, r.err)
	}
	require.Contains(t, alone("inspect", long).err, "has 70000 bytes", "the reason is not cut off")
}

// What the library says of its options is said with the flag and the page of help.
func TestConnect_Refused_NamesFlagAndPage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	web := httptest.NewUnstartedServer(nil) // which ends each handshake that it does not like
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.StartTLS()
	t.Cleanup(web.Close)
	secure := web.Listener.Addr().String()
	for _, tt := range []struct {
		url  string
		code int
	}{
		{"rediss://" + secure, exitUsage},
		{"redis://" + secure, exitUsage},
		{"redis://nobody:wrong@" + s.Addr(), exitDenied},
		{"redis://" + s.Addr() + "/99", exitUsage},
		{"redis://" + s.Addr() + "?addr=127.0.0.1:1", exitUsage},
		{"redis://" + s.Addr() + "?master_set=nobody", exitUsage},
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
			require.Contains(t, text, "--redis redis", tt.url)
			require.Contains(t, text, "see redlatch help connection", tt.url)
		}
	}
}

func TestCompletion_NamesAndFlags_AreOffered(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	red := open(t, s)
	h, err := red.Locks().Reentrant("report:{a}").Lock(t.Context())
	keep(t, err, h.Unlock)
	p, err := red.Semaphores().Semaphore("slots", 2).Acquire(t.Context(), 1)
	keep(t, err, p.Release)
	s.Ask(t, "HSET", "app:hash", "a", "1")
	const noFiles, files = ":4\n", ":0\n"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"inspect", ""}, "report:{a}\nslots\n" + noFiles},
		{[]string{"unlock", "--force", "r"}, "report:{a}\n" + noFiles},
		{[]string{"unlock", "report:{a}", ""}, noFiles},
		{[]string{"run", "--lock", "re"}, "report:{a}\n" + noFiles},
		{[]string{"run", "--semaphore", "s"}, "slots\n" + noFiles},
		{[]string{"run", "--lock", "a", "--", ""}, files},
		{[]string{"elect", "boss", "--", ""}, files},
		{[]string{"stock", "end", ""}, noFiles},
		{[]string{"check", ""}, noFiles},
		{[]string{"limit", "a", "--unit", ""}, "Minute\nHour\nDay\nWeek\nMonth\nYear\n" + noFiles},
		{[]string{"acl", "--only", ""}, strings.Join(acl.Features(), "\n") + "\n" + noFiles},
	} {
		r := here(s, "", append([]string{"__complete"}, tt.args...)...)
		require.Equal(t, tt.want, r.out, "%v: %s", tt.args, r.err)
	}
	r := here(s, "", "--redis", "redis://127.0.0.1:1", "__complete", "inspect", "")
	require.Equal(t, noFiles, r.out)
}

// The rights of redlatch acl are tried in proof/rights; here those of the command itself.
func TestACL_UserOfItsLine_MayInspectOrRun(t *testing.T) {
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
