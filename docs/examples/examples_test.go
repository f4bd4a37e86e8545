// Package examples_test runs the examples, each as its reader does.
package examples_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// stories are what the examples print. Each ends with status 1 if what it shows did not come true.
var stories = map[string]string{
	"cron-once": `ran \d+ times with Unlock, and 4 times with UnlockAfter; it was due 4 times`,
	"fencing": `(?s)WHERE id = 1\n.*slow  clerk, token …\d+: the write is taken\n  in the end 110 of 160: .*` +
		`slow  clerk, token …\d+: the write is refused.*in the end 150 of 160`,
	"leader": `(?s)terminated: candidate \d follows.*resigns\n.*killed: candidate \d follows.*` +
		`stopped.*: candidate \d follows.*has found that it leads no more`,
	"ratelimited-workers": `(?s)killed and has \d slots.*slots are back.*` +
		`of \d+ calls 0 came when 5 were under way`,
	"rpc-join": `(?s)held by billing and shop.*held by billing\n.*turned away.*is free\n.*have the order\n.*409 Conflict`,
	"shop": `(?s)/paid bob closed cancelled.*/paid cid sold.*/paid dan sold.*/refund ann sold.*` +
		`the sale, the database and the bank agree`,
}

// Most of its time an example waits, so that many run side by side.
func TestMain(m *testing.M) { redistest.Main(m, nil) }

// compiled is the folder of the programs, where the next run finds what has not changed since.
var compiled = sync.OnceValues(func() (folder string, err error) {
	folder, err = filepath.Abs("../../bin/examples")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", folder+"/", "./...").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return folder, nil
})

// build compiles all examples, once for all tests.
func build(t *testing.T) (folder string) {
	t.Helper()
	redistest.SkipShort(t)
	folder, err := compiled()
	require.NoError(t, err)
	return folder
}

// servers are the arguments with which the examples are run.
func servers(t *testing.T) map[string][]string {
	return map[string][]string{"embedded": nil, "redis": {"-redis", redistest.Start(t).Addr()}}
}

func TestExamples_Run_ShowWhatTheySay(t *testing.T) {
	t.Parallel()
	folder := build(t)
	for server, args := range servers(t) {
		for name, story := range stories {
			t.Run(name+", "+server, func(t *testing.T) {
				t.Parallel()
				out, err := exec.Command(filepath.Join(folder, name), args...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				require.Regexp(t, story, string(out))
			})
		}
	}
}

// Workers are killed, of which some have just started, while 10,000 users come.
func TestFlashsale_WorkersKilled_SaleIsExact(t *testing.T) {
	t.Parallel()
	folder := build(t)
	all := servers(t)
	all["cluster"] = []string{"-redis", strings.Join(redistest.Cluster(t).Addrs, ",")}
	for server, args := range all {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			sale := exec.Command(filepath.Join(folder, "flashsale"), args...)
			sale.Stderr = os.Stderr
			out, err := sale.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, sale.Start())
			defer sale.Process.Kill()
			pid := regexp.MustCompile(`(?:kill -9|is pid) (\d+)`)
			kills, last := 0, ""
			for lines := bufio.NewScanner(out); lines.Scan(); {
				last = lines.Text()
				if found := pid.FindStringSubmatch(last); found != nil && kills < 8 {
					n, err := strconv.Atoi(found[1])
					require.NoError(t, err)
					worker, err := os.FindProcess(n)
					require.NoError(t, err)
					time.AfterFunc(time.Duration(kills)*300*time.Millisecond, func() { worker.Kill() })
					kills++
				}
			}
			require.NoError(t, sale.Wait())
			require.Equal(t, 8, kills)
			require.Equal(t, "exact: 5,000 users have the units 1 to 5,000, one each; 5,000 users have none; "+
				"the server has sold 5,000", last)
		})
	}
}

// The reader of docs/getting-started.md kills the first process, and the second gets the lock.
func TestStart_HolderKilled_NextGetsTheLock(t *testing.T) {
	t.Parallel()
	folder := build(t)
	embedded := exec.Command(filepath.Join(folder, "server"), "-address", "127.0.0.1:0")
	listening := stderr(t, embedded)
	t.Cleanup(func() { embedded.Process.Kill() })
	for server, address := range map[string]string{
		"embedded": after(t, listening, "listening on "),
		"redis":    redistest.Start(t).Addr(),
	} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			start := func(label string) (*exec.Cmd, *bufio.Scanner) {
				process := exec.Command(filepath.Join(folder, "start"), label)
				process.Env = append(os.Environ(), "REDLATCH_REDIS=redis://"+address)
				lines := stderr(t, process)
				t.Cleanup(func() { process.Process.Kill() })
				return process, lines
			}
			first, said := start("first")
			after(t, said, "got the lock")
			second, says := start("second")
			after(t, says, "waiting for the lock")
			require.NoError(t, first.Process.Kill())
			after(t, says, "got the lock")
			require.NoError(t, second.Process.Signal(os.Interrupt))
			after(t, says, "released the lock")
			require.NoError(t, second.Wait())
		})
	}
}

// stderr starts a command, and returns the lines that it logs.
func stderr(t *testing.T, command *exec.Cmd) *bufio.Scanner {
	t.Helper()
	out, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	return bufio.NewScanner(out)
}

// after reads lines up to one that has text in it, and returns the rest of that line.
func after(t *testing.T, lines *bufio.Scanner, text string) (rest string) {
	t.Helper()
	for lines.Scan() {
		if _, rest, found := strings.Cut(lines.Text(), text); found {
			return rest
		}
	}
	require.Fail(t, "the process ended", "it did not log %q", text)
	return ""
}
