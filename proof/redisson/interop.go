// Package interop drives Redisson: it compiles a small Java program (driver/) against two of its releases and talks to
// it over standard input and output. The tests here run it together with our own clients on one server.
//
// It needs a JDK 17 and Maven, and once Maven Central or a local repository that has what it needs.
package interop

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// RequireEnv, set to 1, turns tests that are skipped for want of a JDK, Maven or Redisson into failures.
const RequireEnv = "REDLATCH_REQUIRE_JAVA"

// DirEnv names the directory that keeps what was compiled. Defaults to one in the user's cache directory.
const DirEnv = "REDLATCH_INTEROP_DIR"

// ErrNoJava: there is no JDK or no Maven in PATH.
var ErrNoJava = errors.New("no JDK and Maven in PATH")

// Release is a release of Redisson that the driver is compiled against.
type Release string

const (
	// Newest is the newest release.
	Newest Release = "newest"
	// Older is the last one before the unlock latch.
	Older Release = "older"
)

//go:embed driver/pom.xml driver/newest/pom.xml driver/older/pom.xml driver/src
var sources embed.FS

// attempts is how often Maven may try to download.
const attempts = 3

// Build compiles the driver, unless that was done before with these sources, and returns where.
func Build(ctx context.Context) (dir string, err error) {
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("interop: %w: %w", ErrNoJava, err)
		}
	}
	dir, err = outputDir()
	if err != nil {
		return "", fmt.Errorf("interop: %w", err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("interop: %w", err)
	}
	// Compiled aside and moved into place: another process may be doing the same.
	work, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return "", fmt.Errorf("interop: %w", err)
	}
	defer os.RemoveAll(work)
	src, err := fs.Sub(sources, "driver")
	if err == nil {
		err = os.CopyFS(work, src)
	}
	if err == nil {
		err = maven(ctx, work)
	}
	if err != nil {
		return "", fmt.Errorf("interop: compile the Java driver: %w", err)
	}
	if err := os.Rename(work, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			return "", fmt.Errorf("interop: %w", err)
		}
	}
	return dir, nil
}

// maven builds without the network if it can: what is in the local repository needs no answer.
func maven(ctx context.Context, dir string) error {
	var err error
	for n := range attempts + 1 {
		args := []string{"-q", "-B", "package"}
		if n == 0 {
			args = append(args, "-o")
		}
		cmd := exec.CommandContext(ctx, "mvn", args...)
		cmd.Dir = dir
		out, e := cmd.CombinedOutput()
		if e == nil {
			return nil
		}
		if n > 0 || err == nil {
			err = fmt.Errorf("mvn: %w: %s", e, firstError(out))
		}
		if ctx.Err() != nil {
			return err
		}
	}
	return err
}

// firstError is the line in which Maven says what is wrong.
func firstError(out []byte) string {
	for line := range bytes.Lines(out) {
		if bytes.Contains(line, []byte("ERROR")) {
			return string(bytes.TrimSpace(line))
		}
	}
	return string(bytes.TrimSpace(out))
}

// outputDir is named after the sources, so that it never has to be brought up to date.
func outputDir() (string, error) {
	base := os.Getenv(DirEnv)
	if base == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			cache = os.TempDir()
		}
		base = filepath.Join(cache, "redlatch-interop")
	}
	h := sha256.New()
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sources.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(b), b)
		return err
	})
	return filepath.Join(base, hex.EncodeToString(h.Sum(nil))[:16]), err
}

// Reply is the driver's answer to one command.
type Reply struct {
	Value string
	Err   error
}

// JavaError is an exception of the Java side.
type JavaError struct{ Class, Message string }

func (e *JavaError) Error() string { return "java: " + e.Class + ": " + e.Message }

// JVM is a running driver. It is safe for concurrent use.
type JVM struct {
	Version string // of Redisson
	cmd     *exec.Cmd
	exited  chan struct{}

	mu      sync.Mutex
	in      io.WriteCloser
	last    int
	waiting map[int]chan Reply
	gone    error
}

// Start runs the driver that Build left in dir. flags are for the JVM.
func Start(dir string, r Release, flags ...string) (*JVM, error) {
	target := filepath.Join(dir, string(r), "target")
	args := append([]string{"-XX:+UseSerialGC", "-Xmx256m", "-Xshare:auto"}, flags...)
	args = append(args, "-cp",
		filepath.Join(target, "classes")+string(os.PathListSeparator)+filepath.Join(target, "lib", "*"),
		"org.redlatch.interop.Driver")
	j := &JVM{cmd: exec.Command("java", args...), exited: make(chan struct{}), waiting: map[int]chan Reply{}}
	hello := make(chan Reply, 1)
	j.waiting[0] = hello
	j.cmd.Stderr = os.Stderr
	var err error
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("interop: %w", err)
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("interop: %w", err)
	}
	if err := j.cmd.Start(); err != nil {
		return nil, fmt.Errorf("interop: %w", err)
	}
	go j.read(out)
	select {
	case r := <-hello:
		if r.Err != nil {
			j.Kill()
			return nil, fmt.Errorf("interop: the driver does not start: %w", r.Err)
		}
		j.Version = r.Value
		return j, nil
	case <-time.After(time.Minute):
		j.Kill()
		return nil, errors.New("interop: the driver says nothing for a minute")
	}
}

func (j *JVM) read(out io.Reader) {
	b := bufio.NewReader(out)
	for {
		line, err := b.ReadString('\n')
		if err != nil {
			break
		}
		id, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, err := strconv.Atoi(id)
		if err != nil {
			continue // not ours
		}
		j.mu.Lock()
		c := j.waiting[n]
		delete(j.waiting, n)
		j.mu.Unlock()
		if c == nil {
			continue
		}
		if value, ok := strings.CutPrefix(rest, "ok "); ok {
			c <- Reply{Value: value}
			continue
		}
		class, message, _ := strings.Cut(strings.TrimPrefix(rest, "err "), " ")
		c <- Reply{Err: &JavaError{class, message}}
	}
	err := j.cmd.Wait()
	j.mu.Lock()
	j.gone = fmt.Errorf("interop: the driver has ended: %v", err) //nolint:errorlint // err may be nil
	for n, c := range j.waiting {
		delete(j.waiting, n)
		c <- Reply{Err: j.gone}
	}
	j.mu.Unlock()
	close(j.exited)
}

// Send has a lane of a client do something, see Driver.java, and returns where the answer will come.
func (j *JVM) Send(lane, client, verb string, args ...any) <-chan Reply {
	c := make(chan Reply, 1)
	var line strings.Builder
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.gone != nil {
		c <- Reply{Err: j.gone}
		return c
	}
	j.last++
	fmt.Fprint(&line, j.last, " ", lane, " ", client, " ", verb)
	for _, a := range args {
		fmt.Fprint(&line, " ", a)
	}
	line.WriteByte('\n')
	j.waiting[j.last] = c
	if _, err := io.WriteString(j.in, line.String()); err != nil {
		delete(j.waiting, j.last)
		c <- Reply{Err: fmt.Errorf("interop: %w", err)}
	}
	return c
}

// Do is Send, and waits for the answer. The lane goes on if ctx ends.
func (j *JVM) Do(ctx context.Context, lane, client, verb string, args ...any) (string, error) {
	select {
	case r := <-j.Send(lane, client, verb, args...):
		return r.Value, r.Err
	case <-ctx.Done():
		return "", fmt.Errorf("interop: no answer to %s %v: %w", verb, args, ctx.Err())
	}
}

// Kill ends the driver at once (SIGKILL), and waits for that. It releases nothing.
func (j *JVM) Kill() {
	j.cmd.Process.Kill()
	<-j.exited
}
