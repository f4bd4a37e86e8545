// Package script runs Lua scripts on the server and says what is known of each run.
//
// A call ends in one of three ways, and callers are told which, because they must act differently:
//
//	answered   the server replied, with a result or with an error of the script's own
//	not run    nothing happened there (errs.ErrUnavailable): safe to send anything again
//	unknown    sent, no reply seen (errs.ErrUnknownOutcome): it may run later, or have run; only a script that
//	           may run twice can be sent again
//
// The runner itself repeats what surely did not run, and what is unknown if the call allows it (Call.Once unset),
// until the call's deadline.
package script

import (
	"crypto/sha1"
	"encoding/hex"
)

// Script is one Lua script. Sources are embedded .lua files, one per script, so that the text and its SHA
// never depend on arguments.
type Script struct {
	name, src, sha string
}

// New makes a script; name is used in error texts.
func New(name, src string) *Script {
	sum := sha1.Sum([]byte(src))
	return &Script{name: name, src: src, sha: hex.EncodeToString(sum[:])}
}

// Plain names a command that is sent as it is (Call.Command), for errors.
func Plain(name string) *Script { return &Script{name: name} }
