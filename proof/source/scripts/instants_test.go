package scripts_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// byThemselves are scripts that compare an instant without the functions of clock.lua, and how often: because their
// common case makes no function; or because it is a pace of the script's own (rwqueue.lua).
var byThemselves = map[string]int{
	"rlock/lua/acquire.lua":       1,
	"rlock/lua/plain_acquire.lua": 1,
	"rlock/lua/rw_read.lua":       1,
	"rlock/lua/rw_write.lua":      1,
	"rlock/lua/lib/rwqueue.lua":   1,
	"rsemaphore/lua/acquire.lua":  1,
	"rcounter/stock/lua/act.lua":  4,
	"rcounter/stock/lua/buy.lua":  1,
}

var (
	comparison = regexp.MustCompile(`(- )?\b(?:q\.)?(?:now|at) (?:<=?|>=?) |(?:<=?|>=?) -?(?:q\.)?now\b( [-+] )?`)
	endless    = regexp.MustCompile(`'-inf', (?:digits\()?(?:q\.)?now\b` +
		`|'(?:ZRANGE|ZREMRANGEBYSCORE|ZCOUNT)', \w+, 0, now\b`)
)

// compared returns the lines of a script that compare the server's time with an instant in their own way. A new end
// that is compared with an old one ("till < now + lease") gives nothing away.
func compared(text string) (lines []string) {
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "--")
		found := endless.MatchString(line)
		for _, m := range comparison.FindAllStringSubmatch(line, -1) {
			found = found || m[1]+m[2] == ""
		}
		if found {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// Whether the millisecond of an instant belongs to what was before it is decided once. A script that decides it for
// itself takes a lease from its holder up to a millisecond before the end that the holder was told.
func TestScripts_Instants_AreComparedByTheLibrary(t *testing.T) {
	eachLua(t, func(file, source string) {
		if file == "internal/script/lua/clock.lua" {
			return
		}
		lines := compared(source)
		if len(lines) != byThemselves[file] {
			t.Errorf("%s compares an instant without expired, begun, late or elapsed:\n%s", file, strings.Join(lines, "\n"))
		}
	})
	for line, found := range map[string]bool{
		"if till <= now then":                                 true,
		"if tonumber(till) > q.now then":                      true,
		"if now >= deadline then":                             true,
		"x = redis.call('ZRANGE', k, '-inf', now, 'BYSCORE')": true,
		"x = redis.call('ZRANGE', ends, 0, now, 'BYSCORE')":   true,
		"redis.call('ZCOUNT', k, '-inf', digits(now))":        true,
		"if till < now + lease then":                          false,
		"if expired(till, now) then -- not till <= now":       false,
		"x = redis.call('ZRANGE', k, '-inf', elapsed(now))":   false,
		"if now - seen > stale then":                          false,
	} {
		require.Equal(t, found, len(compared(line)) > 0, line)
	}
}
