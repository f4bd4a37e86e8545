package rlock

import (
	"embed"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed lua
var lua embed.FS

// load makes the script of a file in lua/; name is what errors call it.
func load(name, file string) *script.Script { return script.Load(name, lua, file) }
