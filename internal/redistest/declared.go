package redistest

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2/server"
)

// Undeclared is the comment in a script of a test that makes keys of its own.
const Undeclared = "-- undeclared keys\n"

// declared has an embedded server refuse a command of a script on a key that the script was not given, as servers with
// more than one thread and proxies of a Cluster do; and the test fails. So every test on an embedded server also shows
// that the scripts it runs touch only the keys in KEYS.
//
// Exempt are texts with the comment Undeclared: those of Redisson make keys.
type declared struct {
	server   *server.Server
	replicas atomic.Int64 // see SetReplicas

	mu      sync.Mutex // one script runs at a time, as in the server
	running atomic.Pointer[scriptRun]
	refused []string
}

// scriptRun is the call of the script that is running.
type scriptRun struct {
	from *server.Peer
	keys []string
	any  bool // it may use any: a transaction, whose scripts have keys of their own, or a text with Undeclared
}

// before is the server's hook. It runs the calls of scripts itself, and then returns true.
func (d *declared) before(from *server.Peer, command string, args []string) (done bool) {
	run := d.running.Load()
	switch {
	case run != nil && run.from == from: // the call that this hook runs
	case inScript(from):
		if run == nil || run.any || len(undeclared(command, args, run.keys)) == 0 {
			return false
		}
		d.refused = append(d.refused, fmt.Sprintf("%s %q", command, args)) // mu is held by the call of the script
		from.WriteError("ERR script tried accessing undeclared keys")
		return true
	case command == "EXEC":
		d.run(&scriptRun{from: from, any: true}, command, args)
		return true
	case (command == "EVAL" || command == "EVALSHA") && len(args) > 1:
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 0 || n > len(args)-2 {
			return false
		}
		d.run(&scriptRun{from: from, keys: args[2 : 2+n], any: strings.Contains(args[0], Undeclared)}, command, args)
		return true
	}
	return false
}

// take returns the commands that were refused since the last take.
func (d *declared) take() (refused []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	refused, d.refused = d.refused, nil
	return refused
}

// judge fails t at its end if an embedded server has refused a command of a script.
func (s *Server) judge(t testing.TB) {
	t.Cleanup(func() {
		for _, what := range s.scripts.take() {
			t.Errorf("redistest: a script has used a key that it was not given: %s", what)
		}
	})
}

func (d *declared) run(run *scriptRun, command string, args []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running.Store(run)
	defer d.running.Store(nil)
	d.server.Dispatch(run.from, append([]string{command}, args...))
}

// inScript reports whether a script sends the command: miniredis has no exported way to tell.
func inScript(from *server.Peer) bool {
	return from.Ctx != nil && reflect.ValueOf(from.Ctx).Elem().FieldByName("nested").Bool()
}

// undeclared returns the keys of a command that are not in keys.
func undeclared(command string, args, keys []string) (found []string) {
	switch command {
	case "TIME", "INFO", "PUBLISH", "SPUBLISH", "PUBSUB": // a channel is no key
		return nil
	case "EXISTS", "DEL", "UNLINK":
	default:
		args = args[:min(1, len(args))]
	}
	return slices.DeleteFunc(slices.Clone(args), func(key string) bool { return slices.Contains(keys, key) })
}

var called = regexp.MustCompile(`redis\.p?call\(\s*'([A-Z]+)'(?:, '([A-Z]+)')?`)

// ScriptCommands returns the commands that a script calls, sorted. A command with a subcommand is one word:
// PUBSUB|NUMSUB.
func ScriptCommands(text string) (commands []string) {
	for _, m := range called.FindAllStringSubmatch(text, -1) {
		if m[1] == "PUBSUB" {
			m[1] += "|" + m[2]
		}
		commands = append(commands, m[1])
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}
