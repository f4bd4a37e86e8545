package scripts_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

var (
	luaComment = regexp.MustCompile(`--[^\n]*`)
	// literal is every form in which a script may use redis.
	literal = regexp.MustCompile(`redis\.(p?call\(\s*'([A-Z]+)'[,)]|(error|status)_reply\()`)
	beyond  = regexp.MustCompile(`\bredis\b|\bserver\s*[.[]|\bload(string)?\b|\b[sg]etfenv\b|\b_G\b`)
	// key is what may stand for the key of a command: of KEYS, or a variable. Where that comes from is seen when it runs.
	key = regexp.MustCompile(`call\(\s*'([A-Z]+)',\s*` +
		`(KEYS\[[^\]]*\][,)]|unpack\(|ARGV\[\w+\] == '\w+' and |[a-z][\w.]*(\[[^\]]*\])?[,)])?`)
	channel = regexp.MustCompile(`'PUBSUB'(, '(NUMSUB|SHARDNUMSUB)',)?`)
)

// wrong are the lines of a script that use redis otherwise than to call a command whose name is a literal in capitals,
// with its subcommand. The keys of commands are judged where a script runs: see redistest.Undeclared.
func wrong(text string) (lines []string) {
	for line := range strings.Lines(luaComment.ReplaceAllString(text, "")) {
		rest := literal.ReplaceAllString(line, "$1")
		for _, m := range channel.FindAllStringSubmatch(line, -1) {
			if m[1] == "" {
				rest += " redis"
			}
		}
		for _, m := range key.FindAllStringSubmatch(line, -1) {
			if m[2] == "" && !slices.Contains([]string{"TIME", "INFO", "PUBLISH", "SPUBLISH", "PUBSUB"}, m[1]) {
				rest += " redis"
			}
		}
		if beyond.MatchString(rest) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestScripts_Commands_AreLiterals(t *testing.T) {
	texts := 0
	eachScript(t, func(file, _, text string) {
		require.Empty(t, wrong(text), file)
		require.NotEmpty(t, redistest.ScriptCommands(text), file)
		texts++
	})
	require.Greater(t, texts, 80)
	for _, text := range []string{
		"redis.pcall(ARGV[1], KEYS[1])", "redis.pcall('S' .. 'ET', KEYS[1])", "redis.call('get', KEYS[1])",
		"redis.pcall(ARGV[1] and 'GET' or 'DEL', KEYS[1])", "local call = redis.call", "local r = redis",
		"redis['call']('GET', KEYS[1])", "redis.setresp(3)", "loadstring('return 1')()", "server.call('GET', KEYS[1])",
		"redis.pcall('PUBSUB', ARGV[1], 'c')", "redis.call('GET', ARGV[1])", "redis.call('GET', 'x')",
		"redis.call('GET', KEYS[1] .. 'x')", "redis.call('GET', name .. 'x')",
	} {
		require.NotEmpty(t, wrong(text), text)
	}
}
