package rlock

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

var joinScript = load("join", "join")

// joinRequest is one try to join the hold of another process.
type joinRequest struct {
	parent, joiner string // owners
	lease          time.Duration
	notAfter       int64 // server ms; 0: any time
}

// joinCall's reply is that of acquireCall.
func joinCall(l *single, r joinRequest) script.Call {
	args := []string{r.parent, r.joiner, script.Millis(r.lease), strconv.FormatInt(r.notAfter, 10)}
	return script.Call{Script: joinScript, Keys: lockAlone(l.keys), Args: args}
}
