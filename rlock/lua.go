package rlock

import (
	"embed"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed lua
var lua embed.FS

// load makes the script of a file in lua/; name is what errors call it.
func load(name, file string) *script.Script { return script.Load(name, lua, file) }

// renewScript is run by the watchdog (package lease), which writes its arguments and reads its replies, as of the other
// kinds'.
var renewScript = load("renew", "renew")

// lockAlone are the keys of a script that makes do with the lock's own, which is the first.
func lockAlone(keys []string) []string { return keys[:1:1] }
