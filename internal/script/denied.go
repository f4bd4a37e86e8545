package script

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
)

// Refused returns err as an ErrDenied, if err says that the server does not know the user or that the user lacks a
// right, and as an ErrInvalidOption, if err says that the server does not take an option of the client. For another err
// the result is nil.
func Refused(err error) error {
	if why, kind := refusal("", err); kind != nil {
		return fmt.Errorf("%w: %s: %w", kind, why, err)
	}
	return nil
}

// refusal is Refused for the error of a script whose text is src; kind is nil if err says neither.
func refusal(src string, err error) (why string, kind error) {
	text := err.Error()
	if errors.Is(err, rueidis.ErrNoCache) && !strings.Contains(text, "NOPERM") && !passing(err) {
		return "the server has no client-side caching, or no HELLO 3: DisableCache must be true", errs.ErrInvalidOption
	}
	switch {
	case strings.HasPrefix(text, "WRONGPASS"):
		return "wrong user name or password, or the user is off: see Username and Password", errs.ErrDenied
	case strings.HasPrefix(text, "NOAUTH"):
		return "the server asks for a password: see Username and Password", errs.ErrDenied
	case strings.Contains(text, "called without any password configured"):
		return "Password is set, and the server has none", errs.ErrInvalidOption
	case strings.Contains(text, "DB index is out of range"),
		strings.Contains(text, "SELECT is not allowed in cluster mode"):
		return "the server has no such database: see SelectDB", errs.ErrInvalidOption
	}
	if right, denied := missing(src, text); denied {
		return "the user lacks " + right, errs.ErrDenied
	}
	return "", nil
}

// BrokenOff reports whether err denies a command inside a script. The writes of the script before that command stand. A
// call that was denied as a whole has done nothing.
func BrokenOff(err error) bool {
	var luaErr *raised
	return errors.Is(err, errs.ErrDenied) && errors.As(err, &luaErr)
}

// noRight are the texts by which a server says that a right is missing, for a command or for one inside a script. The
// texts about scripts are of Redis before 7.2; later versions, and Valkey, use the same text as for other commands.
var noRight = []string{
	"NOPERM ",
	"The user executing the script can't ",
	"The user executing the script is lacking the permissions",
	"ACL failure in script: ",
}

var (
	quotedCommand = lazily(`run the '([^']+)' command`)
	scriptLine    = lazily(`@user_script: ?(\d+)`)
	calledCommand = lazily(`redis\.p?call\)?\(\s*(?:['"](\w+)['"]|(publish)\b)`)
)

// lazily is an expression that is compiled when it is first used: hardly any program ever is denied anything.
func lazily(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// missing returns the right that is missing, in the words of ACL SETUSER, as far as the error tells. Old servers name
// the line of the script, not the command that it may not run, and no line if the script itself replies with the error.
func missing(src, text string) (right string, denied bool) {
	if !slices.ContainsFunc(noRight, func(part string) bool { return strings.Contains(text, part) }) {
		return "", false
	}
	if match := quotedCommand().FindStringSubmatch(text); match != nil {
		return "+" + strings.ToLower(match[1]), true
	}
	line := ""
	if match := scriptLine().FindStringSubmatch(text); match != nil {
		index, _ := strconv.Atoi(match[1])
		if lines := strings.Split(src, "\n"); index >= 1 && index <= len(lines) {
			line = lines[index-1]
		}
	}
	of := called(line)
	switch {
	case strings.Contains(text, "channel"):
		return "a channel pattern (&...)", true
	case strings.Contains(text, " key"):
		if of != "" {
			of = ", for " + of
		}
		return "a key pattern (~...)" + of, true
	}
	if of == "" && strings.Contains(text, "executing the script") {
		of = called(src)
	}
	return cmp.Or(of, "the right to a command"), true
}

// called are the rights to the commands in a script, or in a line of it.
func called(src string) string {
	var commands []string
	for _, match := range calledCommand().FindAllStringSubmatch(src, -1) {
		if name := "+" + strings.ToLower(match[1]+match[2]); !slices.Contains(commands, name) {
			commands = append(commands, name)
		}
	}
	return strings.Join(commands, " or ")
}
