package redistest

import (
	"bufio"
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// TraceEnv names a file. If it is set, every server that a test starts is watched by MONITOR, and the file gets a line
// for each command that a script has called, once in each process: the script's SHA1, the command, and those of its
// keys that were not declared, quoted. Tests that count a server's clients or commands fail then.
const TraceEnv = "REDLATCH_TRACE"

// trace watches the server at addr until it ends. It returns when the server has begun to tell.
//
//nolint:gocognit // one loop over the lines of one program, a case for each form
func trace(addr string) error {
	file := os.Getenv(TraceEnv)
	if file == "" {
		return nil
	}
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(c)
	lines.Buffer(nil, 64<<20)
	fmt.Fprint(c, "MONITOR\r\n")
	if !lines.Scan() || lines.Text() != "+OK" {
		c.Close()
		return fmt.Errorf("MONITOR: %q, %w", lines.Text(), lines.Err())
	}
	go func() {
		defer c.Close()
		var sha string
		var declared []string
		for lines.Scan() {
			source, words := monitored(lines.Text())
			switch {
			case len(words) > 2 && strings.EqualFold(words[0], "EVALSHA"), len(words) > 2 && strings.EqualFold(words[0], "EVAL"):
				if sha = strings.ToLower(words[1]); strings.EqualFold(words[0], "EVAL") {
					sum := sha1.Sum([]byte(words[1]))
					sha = hex.EncodeToString(sum[:])
				}
				n, _ := strconv.Atoi(words[2])
				declared = words[3:min(3+n, len(words))]
			case len(words) == 2 && words[0] == "ECHO":
				if read, is := marks.Load(words[1]); is {
					close(read.(chan struct{}))
				}
			case len(words) > 0 && strings.HasSuffix(source, " lua"):
				traced(file, addr, sha, declared, words)
			}
		}
	}()
	return nil
}

var (
	marks    sync.Map // the text of an ECHO -> a channel that ends when MONITOR has said it
	marksSet atomic.Int64
)

// untraced has all that a server has said be read, before the connections to it are cut.
func untraced(addr string) {
	if os.Getenv(TraceEnv) == "" {
		return
	}
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return
	}
	defer c.Close()
	mark, read := fmt.Sprint("traced-", os.Getpid(), "-", marksSet.Add(1)), make(chan struct{})
	marks.Store(mark, read)
	defer marks.Delete(mark)
	fmt.Fprintf(c, "ECHO %s\r\n", mark)
	select {
	case <-read:
	case <-time.After(2 * time.Second): // it has been stopped, or has said nothing since it started again
	}
}

// monitored takes a line of MONITOR apart: "+1700000000.000000 [0 127.0.0.1:1] "GET" "k"".
func monitored(line string) (source string, words []string) {
	_, rest, _ := strings.Cut(line, "[")
	source, rest, _ = strings.Cut(rest, "] ")
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return source, nil
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return source, nil
		}
		words = append(words, word)
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	return source, words
}

var (
	traceMu sync.Mutex
	seen    = map[string]bool{}
	// of a command's keys among its words: the first, the last, the step. The channel of SPUBLISH has a slot, and is no
	// key.
	places = map[string][3]int{"SPUBLISH": {}}
)

func traced(file, addr, sha string, declared, words []string) {
	traceMu.Lock()
	defer traceMu.Unlock()
	command := strings.ToUpper(words[0])
	at, known := places[command]
	if !known {
		var err error
		if at, err = keyPlaces(addr, command); err != nil {
			return
		}
		places[command] = at
	}
	line := sha + " " + command
	last := at[1]
	if last < 0 {
		last += len(words)
	}
	for i := at[0]; i > 0 && i <= last && i < len(words); i += at[2] {
		if !slices.Contains(declared, words[i]) {
			line += " " + strconv.Quote(words[i])
		}
	}
	if seen[line] {
		return
	}
	seen[line] = true
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		panic(err)
	}
	if err := f.Close(); err != nil {
		panic(err)
	}
}

// keyPlaces asks the server where the keys of a command are.
func keyPlaces(addr, command string) (at [3]int, err error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return at, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // a test may have stopped it
	fmt.Fprintf(c, "COMMAND INFO %s\r\n", command)
	// *1 *10 $n name :arity *n +flag… :first :last :step
	lines, numbers := bufio.NewScanner(c), 0
	for lines.Scan() && numbers < 4 {
		if text, is := strings.CutPrefix(lines.Text(), ":"); is {
			if numbers > 0 {
				at[numbers-1], _ = strconv.Atoi(text)
			}
			numbers++
		}
	}
	if numbers < 4 { // the connection was cut, as all are when a server goes to the next test
		return at, fmt.Errorf("COMMAND INFO %s: %w", command, cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
	}
	return at, nil
}
