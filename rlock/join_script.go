package rlock

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

var joinScript = load("join", "join")

// joinCall is one try of the owner joiner to join the hold of another process, whose owner is parent. notAfter is in
// the server's ms; 0 is any time. The reply is that of acquireCall.
func joinCall(l *single, parent, joiner string, lease time.Duration, notAfter int64) script.Call {
	args := []string{parent, joiner, script.Millis(lease), strconv.FormatInt(notAfter, 10)}
	return script.Call{Script: joinScript, Keys: lockAlone(l.keys), Args: args}
}
