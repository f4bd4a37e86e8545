package script

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync"
)

// Script is one Lua script, for concurrent use. Its text is an embedded .lua file, so that the text and its SHA never
// depend on arguments.
type Script struct {
	name  string
	plain string      // the command, of one that is sent as it is
	sent  func() sent // nil: a plain command's
	reads bool        // see Reads
}

// sent is what a request has of a script: the text, and the hash by which the server knows it.
type sent struct{ src, sha string }

// New makes a script of its text. name stands in error texts.
func New(name, src string) *Script {
	return lazy(name, func() string { return src })
}

// Plain returns a command that is sent as it is, with the keys and then the arguments of the call. For a command that
// only reads, it is a name for errors: see Call.Command.
func Plain(name string) *Script { return &Script{name: name, plain: strings.ToUpper(name)} }

// Reads returns s for calls that only read. Such a call has no outcome: without a reply it is as if it had not run. The
// script may also remove expired records, which does not concern its caller.
func (s *Script) Reads() *Script {
	reading := *s
	reading.reads = true
	return &reading
}

// lazy makes a script whose text is put together when it is first needed, once. Programs have most scripts, and use few
// of them.
func lazy(name string, text func() string) *Script {
	return &Script{name: name, sent: sync.OnceValue(func() sent {
		src := text()
		sum := sha1.Sum([]byte(src))
		return sent{src, hex.EncodeToString(sum[:])}
	})}
}

// src is the text of a script, and "" of a plain command.
func (s *Script) src() string {
	if s.sent == nil {
		return ""
	}
	return s.sent().src
}
