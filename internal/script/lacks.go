package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
)

// unsupportedTexts are the words by which servers and proxies say that they do not do a command: Redis, Valkey and
// Dragonfly, Redis Software, Envoy, Alibaba Cloud, and other proxies. Package profiles has the whole texts.
var unsupportedTexts = []string{"unknown command", "unknown subcommand", "unsupported", "not supported", "not support ",
	"not allowed", "not available", "disallowed", "disabled"}

// Unsupported reports whether err is the answer of a server, or of a proxy before it, that does not do the command, or
// not for this user. Asking again is in vain, and nothing was done. A command that failed inside a script is not meant.
func Unsupported(err error) bool {
	if err == nil || passing(err) || wantsOneSlot(err) {
		return false
	}
	if _, answered := rueidis.IsRedisErr(err); !answered && !errors.Is(err, rueidis.ErrNoCache) {
		return false
	}
	text := strings.ToLower(err.Error())
	if strings.HasPrefix(text, "noperm ") {
		return strings.Contains(text, " run the ") && !strings.Contains(text, inScript) // not a key, nor a channel
	}
	return slices.ContainsFunc(unsupportedTexts, func(words string) bool { return strings.Contains(text, words) }) &&
		!strings.Contains(text, "script") && !strings.HasPrefix(text, "section ") // of INFO, as miniredis says
}

// noEvalsha reports whether err refuses EVALSHA, and so proves that nothing ran. A user who lacks the right to EVALSHA
// is denied: the error names the right, which can be granted.
func noEvalsha(err error) bool { return Unsupported(err) && !strings.HasPrefix(err.Error(), "NOPERM ") }

// CanWait returns why MinReplicas cannot be so many on a server: ErrInvalidOption if the server refuses WAIT,
// ErrUnavailable if it does not answer WAIT within limit. A refusal that passes, as of a server that is loading, does
// not count.
func CanWait(ctx context.Context, client rueidis.Client, limit time.Duration, replicas int) error {
	if replicas == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, release := client.Dedicate() // see eachInfo
	defer release()
	defer conn.Close()
	err := conn.Do(ctx, conn.B().Wait().Numreplicas(0).Timeout(1).Build()).Error()
	switch _, answered := rueidis.IsRedisErr(err); {
	case Unsupported(err):
		return NotConfirmed(replicas, err)
	case err == nil, answered:
		return nil
	}
	return fmt.Errorf("%w: MinReplicas is %d, and the server does not answer WAIT: %w", errs.ErrUnavailable, replicas, err)
}

// NotConfirmed is the error of a call that replicas are to confirm (MinReplicas), on a server that refuses WAIT.
func NotConfirmed(replicas int, refusal error) error {
	return errs.InvalidOption("MinReplicas", replicas, "0: the server refuses WAIT: "+refusal.Error())
}
