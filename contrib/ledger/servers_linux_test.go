package redlatchledger_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// server is a database server of these tests' own: in a directory of its own, on a Unix socket, and ended with them.
type server struct {
	users   []string // which of them it runs as, where the tests are root's: it refuses to be root
	prepare func(s *server) error
	run     func(s *server) (program string, args []string)
	driver  string
	dsn     func(s *server, database string) string
	admin   string // the database that is there

	once  sync.Once
	why   string // it could not be started
	dir   string
	attr  *syscall.SysProcAttr
	child *exec.Cmd
	bases atomic.Int64
}

var postgres = &server{
	users: []string{"postgres", "nobody"}, driver: "pgx", admin: "postgres",
	prepare: func(s *server) error {
		initdb := tool("initdb")
		if initdb == "" || tool("postgres") == "" {
			return errors.New("PostgreSQL is not installed: the package postgresql has it (apt-get install postgresql)")
		}
		return s.must(initdb, "-D", s.file("data"), "-U", "test", "-A", "trust", "-N", "-E", "UTF8", "--no-locale")
	},
	run: func(s *server) (string, []string) {
		return tool("postgres"),
			[]string{"-D", s.file("data"), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c",
				"synchronous_commit=off", "-c", "full_page_writes=off", "-c", "max_connections=200"}
	},
	dsn: func(s *server, database string) string {
		return fmt.Sprintf("host=%s user=test dbname=%s", s.dir, database)
	},
}

// unsafely: what it writes need not outlive the machine.
var unsafely = []string{"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--loose-debug-no-sync"}

var mariadb = &server{
	users: []string{"mysql", "nobody"}, driver: "mysql", admin: "mysql",
	prepare: func(s *server) error {
		program := tool("mariadbd", "mysqld")
		if program == "" {
			return errors.New("neither MariaDB nor MySQL is installed: the package mariadb-server has one (apt-get install " +
				"mariadb-server)")
		}
		if install := tool("mariadb-install-db"); install != "" {
			return s.must(install,
				append([]string{"--no-defaults", "--datadir=" + s.file("data"), "--auth-root-authentication-method=normal",
					"--skip-test-db"}, unsafely...)...)
		}
		return s.must(program, "--no-defaults", "--initialize-insecure", "--datadir="+s.file("data"))
	},
	run: func(s *server) (string, []string) {
		return tool("mariadbd", "mysqld"),
			append([]string{"--no-defaults", "--datadir=" + s.file("data"), "--socket=" + s.file("socket"),
				"--pid-file=" + s.file("pid"),
				"--skip-networking", "--skip-log-bin", "--max-connections=200"}, unsafely...)
	},
	dsn: func(s *server, database string) string {
		return fmt.Sprintf("root@unix(%s)/%s", s.file("socket"), database)
	},
}

// tool is where a program is, by one of its names. Debian has most of PostgreSQL's in no path, and servers in that of
// root.
func tool(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if there, _ := filepath.Glob("/usr/sbin/" + name); len(there) > 0 {
			found = there
		}
		if len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}

func (s *server) file(name string) string { return filepath.Join(s.dir, name) }

func (s *server) command(program string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	var out bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = s.dir, s.attr, &out, &out
	return cmd, &out
}

func (s *server) must(program string, args ...string) error {
	cmd, out := s.command(program, args...)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return nil
}

func (s *server) start() error {
	var err error
	if s.dir, err = os.MkdirTemp("", "redlatch-sql-"); err != nil {
		return err
	}
	s.attr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		i := slices.IndexFunc(s.users, func(name string) bool { _, err := user.Lookup(name); return err == nil })
		if i < 0 {
			return fmt.Errorf("root cannot run it, and there is no user of %q", s.users)
		}
		u, err := user.Lookup(s.users[i])
		if err != nil {
			return err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(s.dir, uid, gid); err != nil {
			return err
		}
	}
	if err := s.prepare(s); err != nil {
		return err
	}
	program, args := s.run(s)
	cmd, out := s.command(program, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	s.child = cmd
	db, err := sql.Open(s.driver, s.dsn(s, s.admin))
	if err != nil {
		return err
	}
	defer db.Close()
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err = db.Ping(); err == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s does not answer: %w: %s", program, err, out)
		}
	}
}

func (s *server) stop() {
	if s.child != nil {
		s.child.Process.Signal(syscall.SIGQUIT) // at once; what it has is of no use any more
		s.child.Wait()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// fresh is a way to open a database with nothing in it.
func (s *server) fresh(t *testing.T) func() *sql.DB {
	if testing.Short() {
		t.Skip("starts a process; leave -short out")
	}
	s.once.Do(func() {
		if err := s.start(); err != nil {
			s.why = err.Error()
		}
	})
	if s.why != "" {
		if os.Getenv(redistest.RequireEnv) == "1" {
			t.Fatalf("%s is 1, and there is no database server: %s", redistest.RequireEnv, s.why)
		}
		t.Skip(s.why)
	}
	name := fmt.Sprint("t", s.bases.Add(1))
	admin, err := sql.Open(s.driver, s.dsn(s, s.admin))
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.Exec("CREATE DATABASE " + name)
	require.NoError(t, err)
	return func() *sql.DB {
		db, err := sql.Open(s.driver, s.dsn(s, name))
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
}

func freshPostgres(t *testing.T) func() *sql.DB { return postgres.fresh(t) }
func freshMySQL(t *testing.T) func() *sql.DB    { return mariadb.fresh(t) }

func TestMain(m *testing.M) {
	if os.Getenv(redistest.RoleEnv) != "" {
		redistest.Main(m, roles)
		return
	}
	code := m.Run()
	postgres.stop()
	mariadb.stop()
	os.Exit(code)
}
