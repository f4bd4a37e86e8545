// Package stage sets the examples up: their server, and the other processes that they start. A reader may skip it.
package stage

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
)

var redis = flag.String("redis", "", "`address` of a Redis or Valkey server, or the addresses of a Cluster's nodes,\n"+
	"with commas; empty: a server is embedded")

// Redis parses the flags, and returns how to reach the server of -redis. Without -redis it starts one in this process,
// on a loopback port, which ends with the process.
func Redis() rueidis.ClientOption {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the library logs the faults that the examples make
	log.SetOutput(os.Stderr)                       // which SetDefault has changed
	log.SetFlags(0)
	flag.Parse()
	if *redis == "" {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		if err := server.Start(); err != nil {
			log.Fatal(err)
		}
		*redis = server.Addr()
	}
	nodes := strings.Split(*redis, ",")
	return rueidis.ClientOption{InitAddress: nodes, DisableCache: true, ForceSingleClient: len(nodes) == 1}
}

const roleEnv = "EXAMPLE_ROLE"

// Role returns what Start was given, and "" in the process that the reader has started.
func Role() string { return os.Getenv(roleEnv) }

// Process is another process of the example.
type Process struct {
	*exec.Cmd
	In  io.WriteCloser // its standard input. When it ends, the process ends, too
	out *bufio.Scanner
}

// Start runs this program once more, on the same server, in a role.
func Start(role string) *Process {
	self, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	p := &Process{Cmd: exec.Command(self, "-redis", *redis)}
	p.Env = append(os.Environ(), roleEnv+"="+role)
	p.Stderr = os.Stderr
	in, err := p.StdinPipe()
	if err != nil {
		log.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	p.In, p.out = in, bufio.NewScanner(out)
	if err := p.Cmd.Start(); err != nil {
		log.Fatal(err)
	}
	return p
}

// Line returns the next line that the process prints, and false when it has ended.
func (p *Process) Line() (string, bool) {
	ok := p.out.Scan()
	return p.out.Text(), ok
}

// Lines returns a channel of the lines that the process prints. It is closed when the process has ended.
func (p *Process) Lines() <-chan string {
	lines := make(chan string)
	go func() {
		for p.out.Scan() {
			lines <- p.out.Text()
		}
		close(lines)
	}()
	return lines
}

// Say sends the process a line. A process that has ended does not get it, which Line reports.
func (p *Process) Say(line string) { fmt.Fprintln(p.In, line) }

// Stop asks the process to end, and waits until it has.
func (p *Process) Stop() {
	p.In.Close()
	p.Wait()
}
