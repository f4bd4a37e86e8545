package redlatchledger_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// cluster is a PostgreSQL of these tests' own: in a directory of its own, on a Unix socket, and ended with them.
type cluster struct {
	dir     string
	process *exec.Cmd
	why     string // it could not be started
	bases   atomic.Int64
}

var (
	postgres = sync.OnceValue(startPostgres)
	started  atomic.Bool
)

// tool is where a program of PostgreSQL is. Debian has most of them in no path.
func tool(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

func startPostgres() *cluster {
	started.Store(true)
	c := &cluster{}
	initdb, server := tool("initdb"), tool("postgres")
	if initdb == "" || server == "" {
		c.why = "PostgreSQL is not installed: the package postgresql has it (apt-get install postgresql)"
		return c
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if c.dir, err = os.MkdirTemp("", "redlatch-pg-"); err != nil {
		c.why = err.Error()
		return c
	}
	if os.Getuid() == 0 { // which PostgreSQL refuses to run as
		for _, name := range []string{"postgres", "nobody"} {
			if u, err := user.Lookup(name); err == nil {
				uid, _ := strconv.Atoi(u.Uid)
				gid, _ := strconv.Atoi(u.Gid)
				attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
				os.Chown(c.dir, uid, gid)
				break
			}
		}
	}
	run := func(name string, args ...string) (*exec.Cmd, *bytes.Buffer) {
		var out bytes.Buffer
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = c.dir, attr, &out, &out
		return cmd, &out
	}
	data := filepath.Join(c.dir, "data")
	if cmd, out := run(initdb, "-D", data, "-U", "test", "-A", "trust", "-N", "-E", "UTF8", "--no-locale"); cmd.Run() != nil {
		c.why = "initdb: " + out.String()
		return c
	}
	cmd, out := run(server, "-D", data, "-k", c.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200")
	if err := cmd.Start(); err != nil {
		c.why = err.Error()
		return c
	}
	c.process = cmd
	db, err := sql.Open("pgx", c.dsn("postgres"))
	if err != nil {
		c.why = err.Error()
		return c
	}
	defer db.Close()
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err = db.Ping(); err == nil {
			return c
		}
		if time.Now().After(until) {
			c.why = fmt.Sprintf("it does not answer: %v: %s", err, out)
			return c
		}
	}
}

func (c *cluster) dsn(database string) string {
	return fmt.Sprintf("host=%s user=test dbname=%s", c.dir, database)
}

func (c *cluster) stop() {
	if c.process != nil {
		c.process.Process.Signal(syscall.SIGQUIT)
		c.process.Wait()
	}
	if c.dir != "" {
		os.RemoveAll(c.dir)
	}
}

// freshPostgres is a way to open a database with the tables.
func freshPostgres(t *testing.T) func() *sql.DB {
	c := postgres()
	if c.why != "" {
		t.Skip(c.why)
	}
	name := fmt.Sprint("t", c.bases.Add(1))
	admin, err := sql.Open("pgx", c.dsn("postgres"))
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.Exec("CREATE DATABASE " + name)
	require.NoError(t, err)
	return func() *sql.DB {
		db, err := sql.Open("pgx", c.dsn(name))
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(redistest.RoleEnv) != "" {
		redistest.Main(m, roles)
	}
	code := m.Run()
	if started.Load() {
		postgres().stop()
	}
	os.Exit(code)
}
