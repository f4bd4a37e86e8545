package redistest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

func TestServersAnswer(t *testing.T) {
	check := func(t *testing.T, s *redistest.Server) {
		c := s.Client(t)
		require.NoError(t, c.Do(context.Background(), c.B().Set().Key("k").Value("v").Build()).Error())
		v, err := c.Do(context.Background(), c.B().Get().Key("k").Build()).ToString()
		require.NoError(t, err)
		require.Equal(t, "v", v)
	}
	redistest.Each(t, check)
	t.Run("cluster", func(t *testing.T) { check(t, redistest.Cluster(t)) })
}

// Between the choice of a port and the server's bind another process may take it: what answers there is not ours then.
func TestAStrangersServerIsNotTakenForTheOneThatWasStarted(t *testing.T) {
	t.Parallel()
	stranger := redistest.Start(t)
	host, port, err := net.SplitHostPort(stranger.Addr())
	require.NoError(t, err)
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"a server":    {"--port", port, "--bind", host, "--dir", dir, "--logfile", dir + "/log"},
		"of Sentinel": {sentinelConf(t, host, port), "--sentinel"},
	} {
		_, _, err = redistest.LaunchAt("redis-server", stranger.Addr(), dir, args)
		require.Error(t, err, name)
	}
}

func sentinelConf(t *testing.T, host, port string) string {
	file := filepath.Join(t.TempDir(), "conf")
	require.NoError(t, os.WriteFile(file, []byte("port "+port+"\nbind "+host+"\n"), 0o600))
	return file
}

func TestMain(m *testing.M) {
	if os.Getenv("REDLATCH_ROLE") == "host" {
		fmt.Println(redistest.Host())
		io.Copy(io.Discard, os.Stdin) // the address is this process's until it ends
		return
	}
	os.Exit(m.Run())
}

func TestNoTwoProcessesShareALoopbackAddress(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.3.4.5:0")
	if err != nil {
		t.Skipf("one loopback address only: %v", err)
	}
	l.Close()
	exe, err := os.Executable()
	require.NoError(t, err)
	hosts := map[string]bool{redistest.Host(): true}
	for range 10 {
		child := exec.Command(exe)
		child.Env = append(os.Environ(), "REDLATCH_ROLE=host")
		stdin, err := child.StdinPipe()
		require.NoError(t, err)
		stdout, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		t.Cleanup(func() { stdin.Close(); child.Wait() })
		host, err := bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
		hosts[strings.TrimSpace(host)] = true
	}
	require.Len(t, hosts, 11)
}

// A process with the id of one that lives in another container, say, begins its search at the same address.
func TestAnAddressThatIsClaimedIsPassedOver(t *testing.T) {
	t.Parallel()
	if redistest.Host() == "127.0.0.1" {
		t.Skip("one loopback address only")
	}
	another := redistest.Claim()
	require.NotEqual(t, redistest.Host(), another)
	require.NotEqual(t, "127.0.0.1", another)
}

func TestServersListenAndAreKnownOnTheProcesssOwnAddress(t *testing.T) {
	t.Parallel()
	require.Contains(t, redistest.Embedded(t).Addr(), redistest.Host()+":")
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		s := redistest.Cluster(t)
		for _, node := range strings.Split(strings.TrimSpace(s.Ask(t, "CLUSTER", "NODES")), "\n") {
			require.Contains(t, node, " "+redistest.Host()+":")
		}
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := redistest.Sentinel(t)
		for _, what := range []string{"REPLICAS", "SENTINELS"} {
			require.Contains(t, s.Ask(t, "SENTINEL", what, "main"), redistest.Host(), what)
			require.NotContains(t, s.Ask(t, "SENTINEL", what, "main"), "127.0.0.1", what)
		}
	})
}

func TestARevivedServerHasItsDataUnlessItIsToBeEmpty(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "no")
	s.Ask(t, "SET", "k", "v")
	before := s.Process.Pid
	s.Kill(t)
	s.Revive(t, false)
	require.NotEqual(t, before, s.Process.Pid)
	require.Equal(t, "v", s.Ask(t, "GET", "k"))
	s.Kill(t)
	s.Revive(t, true)
	require.Equal(t, "0", s.Ask(t, "EXISTS", "k"))
}

func TestCommandCallsCountCommandsInsideScripts(t *testing.T) {
	c := redistest.Start(t).Client(t)
	require.NoError(t, c.Do(context.Background(), c.B().Eval().Script("redis.call('set',KEYS[1],1) return 1").Numkeys(1).Key("k").Build()).Error())
	calls := redistest.CommandCalls(t, c)
	require.Equal(t, 1, calls["eval"])
	require.Equal(t, 1, calls["set"])
}
