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

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// Between the choice of a port and the server's bind another process may take it: what answers there is not ours then.
func TestLaunch_StrangersServer_IsAnError(t *testing.T) {
	t.Parallel()
	stranger := redistest.Start(t)
	host, port, err := net.SplitHostPort(stranger.Addr())
	require.NoError(t, err)
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"a server":    {"--port", port, "--bind", host, "--dir", dir, "--logfile", dir + "/log"},
		"of Sentinel": {sentinelConf(t, host, port), "--sentinel"},
	} {
		_, err = redistest.LaunchAt("redis-server", stranger.Addr(), dir, args)
		require.Error(t, err, name)
	}
}

func sentinelConf(t *testing.T, host, port string) string {
	file := filepath.Join(t.TempDir(), "conf")
	require.NoError(t, os.WriteFile(file, []byte("port "+port+"\nbind "+host+"\n"), 0o600))
	return file
}

func TestMain(m *testing.M) {
	redistest.Main(m, map[string]func() error{"host": func() error {
		fmt.Println(redistest.Host())
		io.Copy(io.Discard, os.Stdin) // the address is this process's until it ends
		return nil
	}})
}

func TestHost_TwoProcesses_HaveTwoAddresses(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.3.4.5:0")
	if err != nil {
		t.Skipf("one loopback address only: %v", err)
	}
	l.Close()
	exe := redistest.NoError(os.Executable())(t)
	hosts := map[string]bool{redistest.Host(): true}
	for range 10 {
		child := exec.Command(exe)
		child.Env = append(os.Environ(), "REDLATCH_ROLE=host")
		stdin := redistest.NoError(child.StdinPipe())(t)
		stdout := redistest.NoError(child.StdoutPipe())(t)
		require.NoError(t, child.Start())
		t.Cleanup(func() { stdin.Close(); child.Wait() })
		host := redistest.NoError(bufio.NewReader(stdout).ReadString('\n'))(t)
		hosts[strings.TrimSpace(host)] = true
	}
	require.Len(t, hosts, 11)
}

// A process with the id of one that lives in another container, say, begins its search at the same address.
func TestHost_ClaimedAddress_IsPassedOver(t *testing.T) {
	t.Parallel()
	if redistest.Host() == "127.0.0.1" {
		t.Skip("one loopback address only")
	}
	another := redistest.Claim()
	require.NotEqual(t, redistest.Host(), another)
	require.NotEqual(t, "127.0.0.1", another)
}

func TestStart_Servers_AreOnTheProcesssAddress(t *testing.T) {
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

func TestRevive_Data_IsThereUnlessEmptied(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "no")
	s.Ask(t, "SET", "k", "v")
	// which takes a while to load
	s.Ask(t, "EVAL", "for i = 1, 30000 do redis.call('SET', 'filler:' .. i, i) end return 1", "0")
	before := s.Process.Pid
	s.Kill(t)
	s.Revive(t, false)
	require.NotEqual(t, before, s.Process.Pid)
	require.Equal(t, "v", s.Ask(t, "GET", "k"))
	s.Kill(t)
	s.Revive(t, true)
	require.Equal(t, "0", s.Ask(t, "EXISTS", "k"))
}

func TestStart_Reused_IsAsIfNew(t *testing.T) {
	redistest.NeedServer(t)
	redistest.EndUnused()
	var first, second string
	ctx := context.Background()
	t.Run("a test leaves one", func(t *testing.T) {
		s := redistest.Start(t)
		first = s.Addr()
		s.Ask(t, "SET", "k", "v")
		s.Ask(t, "SCRIPT", "LOAD", "return 1")
		c := redistest.NoError(rueidis.NewClient(s.Option()))(t)
		t.Cleanup(c.Close)
		require.NoError(t, c.Do(ctx, c.B().Ping().Build()).Error())
	})
	t.Run("the next has it, and it is empty", func(t *testing.T) {
		s := redistest.Start(t)
		require.Equal(t, first, s.Addr())
		require.Equal(t, "0", s.Ask(t, "DBSIZE"))
		require.NotContains(t, s.Ask(t, "INFO", "commandstats"), "cmdstat_set:")
		require.ErrorContains(t,
			s.Client(t).Do(ctx, s.Client(t).B().Evalsha().Sha1("e0e1f9fabfc9d4800c877a703b823ac0578ff8db").Numkeys(0).Build()).
				Error(), "NOSCRIPT")
	})
	for name, disturb := range map[string]func(t *testing.T, s *redistest.Server){
		"was killed":  func(t *testing.T, s *redistest.Server) { require.NoError(t, s.Process.Kill()) },
		"was stopped": func(t *testing.T, s *redistest.Server) { s.Stop(t) },
		"is configured otherwise": func(t *testing.T, s *redistest.Server) {
			s.Ask(t, "CONFIG", "SET", "maxmemory", "1gb")
		},
		"has another user": func(t *testing.T, s *redistest.Server) { s.Ask(t, "ACL", "SETUSER", "app", "on") },
		"is a replica":     func(t *testing.T, s *redistest.Server) { s.Ask(t, "REPLICAOF", "127.0.0.1", "1") },
		"had arguments when it started": func(t *testing.T, _ *redistest.Server) {
			first = redistest.Start(t, "--hz", "20").Addr()
		},
	} {
		t.Run("nobody has one that "+name, func(t *testing.T) {
			t.Run("a test leaves it", func(t *testing.T) {
				s := redistest.Start(t)
				first = s.Addr()
				disturb(t, s)
			})
			second = redistest.Start(t).Addr()
			require.NotEqual(t, first, second)
		})
	}
	t.Run("a Cluster is handed on", func(t *testing.T) {
		var first []string
		for range 5 { // on a busy machine a node may take another for failed when the test ends; that one is not handed on
			t.Run("a test leaves one", func(t *testing.T) { first = redistest.Cluster(t).Addrs })
			if redistest.Unused(3) == 1 {
				break
			}
		}
		t.Run("the next has it", func(t *testing.T) {
			s := redistest.Cluster(t)
			require.Equal(t, first, s.Addrs)
			other := &redistest.Server{Addrs: s.Addrs[1:]}
			s.Ask(t, "CLUSTER", "SETSLOT", "0", "MIGRATING", other.Ask(t, "CLUSTER", "MYID"))
		})
		require.Zero(t, redistest.Unused(3), "not one of which a slot is on its way")
	})
}
