//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/stretchr/testify/require"
)

// The test binary is the parent process, or any kind of worker, when its environment says so.
const (
	parentEnv = "FLASHSALE_TEST_PARENT"
	roleEnv   = "FLASHSALE_TEST_WORKER"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(workerEnv) == "1":
		os.Exit(workAs(os.Getenv(roleEnv)))
	case os.Getenv(parentEnv) == "1":
		main()
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // of the workers: the default is a second each
	os.Exit(m.Run())
}

// workAs is a worker with a fault.
func workAs(role string) int {
	switch role {
	case "dies":
		fmt.Fprintln(os.Stderr, "out of paper")
		return 3
	case "mute": // claims, and never says what came of it
		return work(os.Stdin, filter(func(line string) string {
			if strings.HasPrefix(line, "done ") {
				return ""
			}
			return line
		}))
	case "liar": // calls every winner the first
		winner := regexp.MustCompile(`^(done \d+ granted) \d+`)
		return work(os.Stdin, filter(func(line string) string { return winner.ReplaceAllString(line, "$1 1") }))
	case "miser": // tells the winner of unit 2 that all are sold
		return work(os.Stdin, filter(func(line string) string {
			return strings.Replace(line, "granted 2 ", "soldout 0 ", 1)
		}))
	case "babbler":
		return work(os.Stdin, filter(func(line string) string { return strings.Replace(line, "done ", "sold ", 1) }))
	}
	return work(os.Stdin, os.Stdout)
}

// filter is stdout with every line put through f.
func filter(f func(string) string) io.Writer {
	r, w := io.Pipe()
	go func() {
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := io.WriteString(os.Stdout, f(line)); err != nil {
				os.Exit(1)
			}
		}
	}()
	return w
}

// result is a run that has ended.
type result struct {
	*summary
	stdout, stderr string
	status         int
	out            []win // the file of -out
}

// sellAll runs the program in this process, its workers in others, with -json and -out.
func sellAll(t *testing.T, p program, args ...string) result {
	t.Helper()
	var stdout bytes.Buffer
	var stderr lockedBuffer
	p.stdout, p.stderr = &stdout, &stderr
	if p.stdin == nil {
		p.stdin = strings.NewReader("")
	}
	out := filepath.Join(t.TempDir(), "winners.csv")
	if !slices.Contains(args, "-rate") {
		args = append(args, "-fast")
	}
	r := result{status: p.run(append(args, "-json", "-out", out))}
	r.stdout, r.stderr = stdout.String(), stderr.String()
	t.Logf("%v\n%s%s", args, r.stderr, r.stdout)
	require.NotContains(t, r.stderr, "DATA RACE")
	if r.stdout != "" {
		r.summary = parseSummary(t, r.stdout)
		require.Equal(t, r.status, r.Exit)
		r.out = readWinners(t, out)
		require.Len(t, r.out, int(r.Winners))
		require.Equal(t, r.Claims, r.Winners+r.Already+r.SoldOut+r.Malformed+r.Errors+r.Unanswered)
	}
	return r
}

func parseSummary(t *testing.T, text string) *summary {
	t.Helper()
	var s summary
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&s))
	require.ErrorIs(t, d.Decode(&s), io.EOF, "one object and nothing more")
	return &s
}

func readWinners(t *testing.T, path string) (wins []win) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"ordinal", "user"}, rows[0][:2]) // a red packet has a third column
	for _, row := range rows[1:] {
		n, err := strconv.ParseInt(row[0], 10, 64)
		require.NoError(t, err)
		wins = append(wins, win{n, row[1]})
	}
	return wins
}

// requireFair is the test's own look at the winners, independent of the books: ordinals first to last in order, every
// user once.
func requireFair(t *testing.T, wins []win, first, last int64) {
	t.Helper()
	require.Len(t, wins, int(last-first+1))
	users := map[string]bool{}
	for i, w := range wins {
		require.Equal(t, first+int64(i), w.ordinal)
		require.False(t, users[w.user], "%q twice", w.user)
		users[w.user] = true
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// stockOf is the stock that a run uses, as another process sees it.
func stockOf(t *testing.T, s *redistest.Server, name string) *stock.Stock {
	t.Helper()
	h, err := pubsub.New(s.Client(t), pubsub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { h.Close(context.Background()) })
	c, err := stock.New(h, stock.Options{})
	require.NoError(t, err)
	return c.Stock(name)
}

func soldBy(t *testing.T, stock *stock.Stock) int64 {
	st, err := stock.Inspect(context.Background())
	require.NoError(t, err)
	return st.Sold
}

func crowdCSV(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "u%d,x\n", i)
	}
	return b.String()
}

func as(role string) func(*sale) {
	return func(s *sale) {
		plain := s.command
		s.command = func(n int) (*exec.Cmd, error) {
			cmd, err := plain(n)
			if err == nil {
				cmd.Env = append(cmd.Env, roleEnv+"="+role)
			}
			return cmd, err
		}
	}
}

func TestDefaultRunNeedsNothing(t *testing.T) {
	r := sellAll(t, program{})
	require.Equal(t, exitOK, r.status)
	require.Equal(t, []int64{10_000, 5000, 0, 5000, 0, 0, 0},
		[]int64{r.Claims, r.Winners, r.Already, r.SoldOut, r.Malformed, r.Errors, r.Unanswered})
	require.Equal(t, "embedded", r.Server)
	require.Equal(t, 4, r.Procs)
	require.True(t, r.Complete)
	require.Equal(t, "ok", r.Check)
	require.Positive(t, r.ClaimsPerSecond)
	require.Positive(t, r.P99)
	require.GreaterOrEqual(t, r.P99, r.P50) // which is 0 where most are answered without the server: it is sold out
	requireFair(t, r.out, 1, 5000)
	require.Contains(t, r.stderr, "got the leader lock and opened the sale of 5,000 units\n")
}

func TestClaimsComeAtTheRateThatIsGivenSoThatThereIsTimeToKill(t *testing.T) {
	began := time.Now()
	r := sellAll(t, program{}, "-rate", "200", "-users", "101", "-stock", "50", "-procs", "2")
	require.GreaterOrEqual(t, time.Since(began), 500*time.Millisecond)
	require.Equal(t, exitOK, r.status)
	requireFair(t, r.out, 1, 50)
	require.Regexp(t, `2 workers: pid (\d+), \d+; try kill -9 \d+\n`, r.stderr)
	require.Equal(t, "[########............] 42 %", bar(42))
	require.Equal(t, "[####################] 100 %", bar(100))
}

func TestTheSummaryIsForPeople(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := program{stdin: strings.NewReader("user\nanna\nbert\n\nanna\ncarl\n"), stdout: &stdout,
		stderr: &stderr}.run(strings.Fields("-claims - -stock 2 -procs 1"))
	require.Equal(t, exitOK, status)
	// claims are made side by side: both of anna's may come when bert and carl have won
	require.Regexp(t, `^stock +flashsale-\d{8}-\d{6}-[0-9a-f]{8} on the embedded server
claims read +5
  winners +2  of 2 units
  (already had one +1
  sold out +1|already had one +0
  sold out +2)
  malformed +1
  errors +0
claims/s +[\d,]+  in \d+\.\d\d s, 1 worker
latency p50 +\d+\.\d\d ms
latency p99 +\d+\.\d\d ms
check ok: no ordinal twice, no user twice, 2 winners = min\(2 units, 2 users or more\)
$`, stdout.String())
	require.Contains(t, stderr.String(), `flashsale: stdin:1: "user" is taken for a header`)
	require.Contains(t, stderr.String(), `flashsale: stdin:4: skipped, the line is empty`)
}

// messy is a file with everything in it: 600 users, 200 of them three times, and five malformed lines.
func messy(t *testing.T) string {
	var b strings.Builder
	b.WriteString("\ufeffUser_ID,at\r\n")
	for i := 1; i <= 600; i++ {
		switch i {
		case 100:
			b.WriteString(",blank\r\n")
		case 200:
			b.WriteString("\"no end,1\r\n")
		case 300:
			b.WriteString("\"x\"y,1\r\n")
		case 400:
			b.WriteString("   \t,1\r\n")
		case 500:
			b.WriteString(strings.Repeat("z", 2*maxLine) + "\r\n")
		}
		fmt.Fprintf(&b, "\"u,%d\",1\r\n", i)
		if i%3 == 0 {
			fmt.Fprintf(&b, "\"u,%d\",again\r\n\"u,%d\"\r\n", i, i)
		}
	}
	path := filepath.Join(t.TempDir(), "claims.csv")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

func TestCountsAreExact(t *testing.T) {
	path := messy(t)
	run := func(t *testing.T, s *redistest.Server) {
		t.Run("more units than users", func(t *testing.T) {
			r := sellAll(t, program{}, "-redis", strings.Join(s.Addrs, ","), "-claims", path, "-stock", "700", "-procs", "3")
			require.Equal(t, exitOK, r.status)
			require.Equal(t, []int64{1005, 600, 400, 0, 5, 0, 0},
				[]int64{r.Claims, r.Winners, r.Already, r.SoldOut, r.Malformed, r.Errors, r.Unanswered})
			requireFair(t, r.out, 1, 600)
			for _, line := range []string{"claims.csv:167: skipped, the user id is blank", `: "\"no end,1"`,
				"text follows the closing quote of column 1", "the line is longer than"} {
				require.Contains(t, r.stderr, line)
			}
			require.Equal(t, strings.Join(s.Addrs, ","), r.Server)
		})
		t.Run("fewer", func(t *testing.T) {
			f, err := os.Open(path)
			require.NoError(t, err)
			defer f.Close()
			r := sellAll(t, program{stdin: f}, "-redis", strings.Join(s.Addrs, ","), "-claims", "-", "-stock", "150")
			require.Equal(t, exitOK, r.status)
			require.EqualValues(t, 150, r.Winners)
			require.EqualValues(t, 5, r.Malformed)
			require.EqualValues(t, 850, r.Already+r.SoldOut)
			requireFair(t, r.out, 1, 150)
		})
	}
	t.Run("redis", func(t *testing.T) { run(t, redistest.Start(t)) })
	t.Run("cluster", func(t *testing.T) { run(t, redistest.Cluster(t)) })
}

// killer kills workers with SIGKILL: the first ones at once and while they connect, lock and open, then one every few
// answers.
type killer struct {
	mu    sync.Mutex
	r     *rand.Rand
	alive map[int]*os.Process
	early int // processes still to be killed before they have done anything
	every int64
	seen  atomic.Int64
	wg    sync.WaitGroup
	kills atomic.Int64
}

func (k *killer) started(n int, p *os.Process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.alive[n] = p
	if k.early > 0 {
		k.early--
		wait := time.Duration(k.r.Int64N(int64(40 * time.Millisecond)))
		k.wg.Go(func() {
			<-time.After(wait) // any moment of its start will do
			if p.Kill() == nil {
				k.kills.Add(1)
			}
		})
	}
}

func (k *killer) answered() {
	if k.seen.Add(1)%k.every != 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.alive[1+k.r.IntN(len(k.alive))].Kill() == nil {
		k.kills.Add(1)
	}
}

func TestKilledWorkersLoseAndDoubleNobody(t *testing.T) {
	s := redistest.Start(t)
	seed := uint64(time.Now().UnixNano())
	for round := range uint64(3) {
		t.Logf("seed %d", seed+round)
		k := &killer{r: rand.New(rand.NewPCG(seed, round)), alive: map[int]*os.Process{}, early: 8, every: 700}
		r := sellAll(t, program{tune: func(s *sale) { s.started, s.onAnswer = k.started, k.answered }},
			"-redis", s.Addr(), "-users", "6000", "-stock", "4000")
		k.wg.Wait()
		require.Equal(t, exitOK, r.status)
		require.Positive(t, k.kills.Load())
		require.Positive(t, r.Restarts)
		require.Equal(t, []int64{6000, 4000, 0, 2000}, []int64{r.Claims, r.Winners, r.Already, r.SoldOut})
		requireFair(t, r.out, 1, 4000)
	}
}

// A leader that is killed with the lock in hand is, to the others, a lock that no process releases.
func TestTheSaleOpensAfterItsLeaderDiedHoldingTheLock(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	s := redistest.Start(t)
	h, err := pubsub.New(s.Client(t), pubsub.Options{})
	require.NoError(t, err)
	defer h.Close(context.Background())
	locks, err := rlock.New(h, rlock.Options{})
	require.NoError(t, err)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	defer locks.Close(over) // without waiting for an Unlock that does not come
	hold, err := locks.Reentrant("orphaned"+leaderLock).TryLock(context.Background(), 0, leaderLease)
	require.NoError(t, err)
	defer runtime.KeepAlive(hold)
	r := sellAll(t, program{}, "-redis", s.Addr(), "-users", "300", "-name", "orphaned", "-stock", "100")
	require.Equal(t, exitOK, r.status)
	requireFair(t, r.out, 1, 100)
}

func TestANamedStockIsContinued(t *testing.T) {
	s := redistest.Start(t)
	redis := []string{"-redis", s.Addr(), "-claims", "-", "-name", "spring sale"}
	run := func(in string, more ...string) result {
		return sellAll(t, program{stdin: strings.NewReader(in)}, append(redis, more...)...)
	}
	r := run(crowdCSV(1, 60), "-stock", "100")
	require.Equal(t, exitOK, r.status)
	require.Equal(t, []int64{60, 60, 0, 0, 0}, []int64{r.Claims, r.Winners, r.Already, r.SoldOut, r.SoldBefore})
	requireFair(t, r.out, 1, 60)

	r = run(crowdCSV(41, 70), "-stock", "100")
	require.Equal(t, exitOK, r.status)
	require.Equal(t, []int64{30, 10, 20, 0, 60}, []int64{r.Claims, r.Winners, r.Already, r.SoldOut, r.SoldBefore})
	requireFair(t, r.out, 61, 70)

	r = run(crowdCSV(1, 300))
	require.Equal(t, exitOK, r.status)
	require.Equal(t, []int64{300, 30, 70, 200, 70}, []int64{r.Claims, r.Winners, r.Already, r.SoldOut, r.SoldBefore})
	requireFair(t, r.out, 71, 100)

	r = run(crowdCSV(1, 300))
	require.Equal(t, exitOK, r.status)
	require.Equal(t, []int64{300, 0, 100, 200}, []int64{r.Claims, r.Winners, r.Already, r.SoldOut})

	r = run("u1\n", "-stock", "50")
	require.Equal(t, exitUsage, r.status)
	require.Contains(t, r.stderr, `-stock 50: stock "spring sale" was opened with 100 units`)
	require.NoError(t, stockOf(t, s, "spring sale").EndSale(context.Background()))
	r = run("u1\n")
	require.Equal(t, exitUsage, r.status)
	require.Contains(t, r.stderr, `-name "spring sale": this stock is there and closed`)
}

// parent is the program in a process group of its own, as a shell starts it.
type parent struct {
	*exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr lockedBuffer
	exited         chan struct{}
	err            error
}

func startParent(t *testing.T, args ...string) *parent {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &parent{Cmd: exec.Command(exe, args...), exited: make(chan struct{})}
	p.Env = append(os.Environ(), parentEnv+"=1")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	p.stdin, err = p.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	go func() { p.err = p.Wait(); close(p.exited) }()
	t.Cleanup(func() { p.Process.Kill(); <-p.exited; t.Log(p.stderr.String()) })
	return p
}

// workers waits for the line that names them.
func (p *parent) workers(t *testing.T) (pids []int) {
	t.Helper()
	line := regexp.MustCompile(`workers?: pid ([\d, ]+)\n`)
	redistest.Eventually(t, 20*time.Second, "the workers are named", func() bool {
		return line.MatchString(p.stderr.String())
	})
	for _, s := range strings.Split(line.FindStringSubmatch(p.stderr.String())[1], ", ") {
		pid, err := strconv.Atoi(s)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func requireGone(t *testing.T, pids []int) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "the workers have ended", func() bool {
		for _, pid := range pids {
			// one that the test process inherited as a zombie is gone as well
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil &&
				!strings.Contains(string(stat), ") Z ") {
				return false
			}
		}
		return true
	})
}

// ignored is the last hexadecimal digit of a process's ignored signals: its second bit is SIGINT.
var ignored = regexp.MustCompile(`SigIgn:\s+[0-9a-f]*([0-9a-f])\n`)

func TestCtrlCEndsWithTheSummarySoFar(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := startParent(t, "-redis", s.Addr(), "-claims", "-", "-name", "interrupted", "-json", "-procs", "3")
	pids := p.workers(t)
	require.Len(t, pids, 3)
	_, err := io.WriteString(p.stdin, crowdCSV(1, 40))
	require.NoError(t, err)
	stock := stockOf(t, s, "interrupted")
	redistest.Eventually(t, 20*time.Second, "40 units are sold", func() bool { return soldBy(t, stock) == 40 })
	redistest.Eventually(t, 20*time.Second, "the workers ignore it", func() bool {
		for _, pid := range pids {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if m := ignored.FindSubmatch(status); err == nil && (m == nil || !strings.ContainsAny(string(m[1]), "2367abef")) {
				return false
			}
		}
		return true
	})
	// as a terminal does it: parent and workers at once
	require.NoError(t, syscall.Kill(-p.Process.Pid, syscall.SIGINT))
	<-p.exited
	var exit *exec.ExitError
	require.ErrorAs(t, p.err, &exit)
	require.Equal(t, 130, exit.ExitCode())
	r := parseSummary(t, p.stdout.String())
	require.Equal(t, []int64{40, 40, 0}, []int64{r.Claims, r.Winners, r.Unanswered})
	require.True(t, r.Interrupted)
	require.False(t, r.Complete)
	require.Equal(t, "ok", r.Check)
	require.NotContains(t, p.stderr.String(), "ended with", "no worker died of it")
	requireGone(t, pids)
}

func TestWorkersDieWithTheirParent(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := startParent(t, "-redis", s.Addr(), "-claims", "-")
	pids := p.workers(t)
	require.NoError(t, p.Process.Kill())
	<-p.exited
	requireGone(t, pids)
}

func TestAnInterruptedRunStillKnowsItsWinners(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	stock := stockOf(t, s, "mute")
	signals := make(chan os.Signal, 1)
	in, feed := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := io.WriteString(feed, crowdCSV(1, 30))
		for end := time.Now().Add(20 * time.Second); err == nil; {
			st, e := stock.Inspect(context.Background())
			if err = e; st.Sold == 20 {
				break
			}
			if time.Now().After(end) {
				err = fmt.Errorf("sold %d", st.Sold)
			}
		}
		signals <- os.Interrupt
		done <- err
	}()
	r := sellAll(t, program{stdin: in, signals: signals, tune: func(s *sale) {
		as("mute")(s)
		s.Grace = 300 * time.Millisecond
	}},
		"-redis", s.Addr(), "-claims", "-", "-stock", "20", "-name", "mute")
	require.NoError(t, <-done)
	feed.Close()
	require.Equal(t, 130, r.status)
	require.EqualValues(t, 20, r.Winners, "the workers never said so")
	requireFair(t, r.out, 1, 20)
	require.Empty(t, r.Notes)
}

func TestASecondCtrlCDoesNotWait(t *testing.T) {
	signals := make(chan os.Signal, 2)
	var once sync.Once
	in, feed := io.Pipe()
	go io.WriteString(feed, crowdCSV(1, 3))
	defer feed.Close()
	r := sellAll(t, program{stdin: in, signals: signals, tune: func(s *sale) {
		as("mute")(s)
		s.Grace = time.Hour
		s.started = func(int, *os.Process) { once.Do(func() { signals <- os.Interrupt; signals <- os.Interrupt }) }
	}}, "-claims", "-")
	require.Equal(t, 130, r.status)
}

func TestAWorkerThatAlwaysDiesEndsTheRun(t *testing.T) {
	r := sellAll(t, program{tune: func(s *sale) { as("dies")(s); s.maxDeaths = 3 }}, "-procs", "1")
	require.Equal(t, exitBad, r.status)
	require.Contains(t, r.Error,
		"worker 1 died 3 times without answering a claim in between; the last one ended with: exit status 3")
	require.Contains(t, r.stderr, "worker 1: out of paper")
	require.EqualValues(t, 2, r.Restarts)
	require.False(t, r.Complete)
}

func TestAStuckWorkerIsReplaced(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	s := redistest.Start(t)
	var stopped atomic.Bool
	r := sellAll(t, program{tune: func(s *sale) {
		s.Quiet = 2 * time.Second
		s.started = func(n int, p *os.Process) {
			if n == 1 && stopped.CompareAndSwap(false, true) {
				p.Signal(syscall.SIGSTOP)
			}
		}
	}}, "-redis", s.Addr(), "-users", "2000", "-stock", "100", "-procs", "1")
	require.Equal(t, exitOK, r.status)
	require.Contains(t, r.stderr, "has said nothing for 2s and is killed")
	requireFair(t, r.out, 1, 100)
}

func TestLyingWorkersAreFoundOut(t *testing.T) {
	for role, fault := range map[string]string{
		"liar":  "was given twice",
		"miser": "winners, and 5 were due",
	} {
		r := sellAll(t, program{stdin: strings.NewReader(crowdCSV(1, 9)), tune: as(role)}, "-claims", "-", "-stock", "5",
			"-procs", "1")
		require.Equal(t, exitBad, r.status)
		require.Equal(t, "failed", r.Check)
		require.Contains(t, strings.Join(r.Faults, "\n"), fault)
	}
	r := sellAll(t, program{stdin: strings.NewReader("a\n"), tune: func(s *sale) {
		as("babbler")(s)
		s.maxDeaths = 2
	}}, "-claims", "-", "-procs", "1")
	require.Equal(t, exitBad, r.status)
	require.Contains(t, r.Error, "not an answer")
}

func TestACheckThatFailedIsSaid(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := program{stdin: strings.NewReader(crowdCSV(1, 9)), stdout: &stdout, stderr: &stderr,
		tune: as("liar")}.run(strings.Fields("-claims - -stock 2 -procs 1"))
	require.Equal(t, exitBad, status)
	require.Contains(t, stdout.String(), "CHECK FAILED: unit 1 was given twice")
	require.NotContains(t, stdout.String(), "check ok")
}

func TestALargeCrowdLeavesAHundredWinnersInTheFile(t *testing.T) {
	t.Parallel()
	r := sellAll(t, program{}, "-redis", redistest.Start(t).Addr(), "-stock", "100", "-users",
		redistest.Sized("2000", "5000", "100000"))
	require.Equal(t, "ok", r.Check)
	require.Len(t, r.out, 100)
}

func TestARunWithoutRedisGivesUpAndSaysSo(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	s := redistest.Start(t)
	var once sync.Once
	r := sellAll(t, program{tune: func(sale *sale) {
		sale.Retry, sale.Grace = time.Second, 300*time.Millisecond
		sale.onAnswer = func() { once.Do(func() { s.Process.Kill() }) }
	}}, "-redis", s.Addr(), "-users", "100000", "-procs", "1")
	require.Equal(t, exitBad, r.status)
	require.False(t, r.Complete)
	require.Equal(t, "ok", r.Check)
	require.Positive(t, r.Errors)
	require.Less(t, r.Claims, int64(100_000))
	require.Contains(t, r.Error, "has answered no claim for")
}

func TestAStockThatVanishesIsNotOpenedAgain(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(t)
	var n atomic.Int64
	k := &killer{r: rand.New(rand.NewPCG(1, 1)), alive: map[int]*os.Process{}, every: 100}
	r := sellAll(t, program{tune: func(sale *sale) {
		sale.started = k.started
		sale.onAnswer = func() {
			if n.Add(1) == 50 {
				c.Do(context.Background(), c.B().Flushall().Build())
			}
			k.answered() // a worker that starts after the loss must not open it either
		}
		// one worker: while several start, each of them may still be the one to open it
	}}, "-redis", s.Addr(), "-users", "3000", "-stock", "2000", "-procs", "1")
	require.Equal(t, exitBad, r.status)
	require.Equal(t, "failed", r.Check, "the server forgot units that were won")
	require.Contains(t, r.Faults, "the server no longer has the stock")
	require.Less(t, r.Winners, int64(1000))
	require.Contains(t, r.stderr+r.Error, errVanished.Error())
}

func TestAFileThatBreaksOffIsNotTheEnd(t *testing.T) {
	r := sellAll(t, program{stdin: io.MultiReader(strings.NewReader("a\nb\n"), iotestErr{errors.New("disk on fire")})},
		"-claims", "-", "-procs", "1")
	require.Equal(t, exitBad, r.status)
	require.Equal(t, "reading stdin after 2 lines: disk on fire", r.Error)
	require.False(t, r.Complete)
}

func TestNoClaimsIsNoError(t *testing.T) {
	r := sellAll(t, program{}, "-claims", "-", "-procs", "2")
	require.Equal(t, exitOK, r.status)
	require.Zero(t, r.Claims)
	require.True(t, r.Complete)
}
