package script

import (
	"crypto/sha1"
	"encoding/hex"
)

// Script is one Lua script. Its text is an embedded .lua file, so that the text and its SHA never depend on arguments.
type Script struct {
	name, src, sha string
}

// New makes a script of its text. name stands in error texts.
func New(name, src string) *Script {
	sum := sha1.Sum([]byte(src))
	return &Script{name: name, src: src, sha: hex.EncodeToString(sum[:])}
}

// Plain returns a name for errors of a command that is sent as it is (Call.Command).
func Plain(name string) *Script { return &Script{name: name} }
