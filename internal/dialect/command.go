package dialect

import (
	"slices"
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// keysOf are the numbers of a command's arguments that are keys, from 1; 0 all. A channel is no key.
func keysOf(command string) []int {
	switch command {
	case "TIME", "INFO", "PUBLISH", "SPUBLISH", "PUBSUB":
		return nil
	case "EXISTS", "DEL", "UNLINK":
		return []int{0}
	}
	return []int{1}
}

// globals are the names of Lua and of the server that a script may use.
var globals = strings.Fields("KEYS ARGV tonumber tostring type ipairs pairs unpack error string table math")

// containers are the commands whose first argument is a subcommand.
var containers = []string{"PUBSUB"}

// pure are the functions of Lua that change nothing in the tables that they are given.
var pure = strings.Fields("ipairs pairs table.concat type tostring tonumber")

// command looks at one call of redis.call or redis.pcall: the rules of the dialect.
func (w *walk) command(x *ast.FuncCallExpr, callee string, s *scope) {
	values := w.values(x.Args, 0, s)
	switch callee {
	case "redis.call", "redis.pcall":
	case "redis.error_reply", "redis.status_reply":
		return
	default:
		w.report(x.Line(), "calls %s", callee)
		return
	}
	line := x.Line()
	if len(x.Args) == 0 {
		w.report(line, "calls no command")
		return
	}
	literal, is := x.Args[0].(*ast.StringExpr)
	if !is {
		w.report(line, "calls a command whose name is not a literal")
		return
	}
	command := literal.Value
	if command != strings.ToUpper(command) {
		w.report(line, "calls %s, not in capitals", command)
	}
	said := command
	if slices.Contains(containers, command) {
		sub, is := x.Args[min(1, len(x.Args)-1)].(*ast.StringExpr)
		if !is || len(x.Args) < 2 {
			w.report(line, "calls a subcommand of %s whose name is not a literal", command)
			return
		}
		said += "|" + sub.Value
	}
	if !slices.Contains(w.Commands, said) {
		w.Commands = append(w.Commands, said)
	}
	for _, n := range keysOf(command) {
		keys := values[1:]
		if n > 0 {
			keys = values[min(n, len(values)):min(n+1, len(values))]
		}
		if len(keys) == 0 {
			w.report(line, "calls %s without a key", command)
		}
		for i, v := range keys {
			if !v.key {
				w.report(line, "argument %d of %s is not shown to be of KEYS", max(n, i+1), command)
			}
		}
	}
}
