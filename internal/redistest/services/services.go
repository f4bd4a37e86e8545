// Package services starts the servers that tests, Examples and programs of contrib need: a PostgreSQL and a MariaDB,
// each in a directory of its own, on a Unix socket, and ended by Stop; and a Redis in the process, with a client. Users
// of a database import the drivers pgx and mysql.
package services

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// Server is a database server, which is started when it is first needed.
type Server struct {
	// Driver is the name of its driver in database/sql.
	Driver string

	users   []string // which of them it runs as, where the process is root's: it refuses to be root
	prepare func(s *Server) error
	run     func(s *Server) (program string, args []string)
	dsn     func(s *Server, database string) string
	admin   string // the database that every server has

	once  sync.Once
	why   error // it could not be started
	dir   string
	attr  *syscall.SysProcAttr
	child *exec.Cmd
	bases atomic.Int64
}

// PostgreSQL is the PostgreSQL of this process.
var PostgreSQL = &Server{
	users: []string{"postgres", "nobody"}, Driver: "pgx", admin: "postgres",
	prepare: func(s *Server) error {
		initdb := tool("initdb")
		if initdb == "" || tool("postgres") == "" {
			return errors.New("PostgreSQL is not installed: the package postgresql has it (apt-get install postgresql)")
		}
		return s.must(initdb, "-D", s.file("data"), "-U", "test", "-A", "trust", "-N", "-E", "UTF8", "--no-locale")
	},
	run: func(s *Server) (string, []string) {
		return tool("postgres"), []string{"-D", s.file("data"), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off",
			"-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "max_connections=200"}
	},
	dsn: func(s *Server, database string) string {
		return fmt.Sprintf("host=%s user=test dbname=%s", s.dir, database)
	},
}

// unsafely: what it writes need not outlive the machine.
var unsafely = []string{"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--loose-debug-no-sync"}

// MariaDB is the MariaDB of this process, or a MySQL where that is installed.
var MariaDB = &Server{
	users: []string{"mysql", "nobody"}, Driver: "mysql", admin: "mysql",
	prepare: func(s *Server) error {
		program := tool("mariadbd", "mysqld")
		if program == "" {
			return errors.New("neither MariaDB nor MySQL is installed: the package mariadb-server has one " +
				"(apt-get install mariadb-server)")
		}
		if install := tool("mariadb-install-db"); install != "" {
			return s.must(install, append([]string{"--no-defaults", "--datadir=" + s.file("data"),
				"--auth-root-authentication-method=normal", "--skip-test-db"}, unsafely...)...)
		}
		return s.must(program, "--no-defaults", "--initialize-insecure", "--datadir="+s.file("data"))
	},
	run: func(s *Server) (string, []string) {
		return tool("mariadbd", "mysqld"), append([]string{"--no-defaults", "--datadir=" + s.file("data"),
			"--socket=" + s.file("socket"), "--pid-file=" + s.file("pid"), "--skip-networking", "--skip-log-bin",
			"--max-connections=200"}, unsafely...)
	},
	dsn: func(s *Server, database string) string {
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

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) command(program string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	var out bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = s.dir, s.attr, &out, &out
	return cmd, &out
}

func (s *Server) must(program string, args ...string) error {
	cmd, out := s.command(program, args...)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return nil
}

func (s *Server) start() error {
	var err error
	if s.dir, err = os.MkdirTemp("", "redlatch-sql-"); err != nil {
		return err
	}
	if s.attr, err = attributes(s.users, s.dir); err != nil {
		return err
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
	db, err := sql.Open(s.Driver, s.dsn(s, s.admin))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // it was for looking only
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err = db.Ping(); err == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s does not answer: %w: %s", program, err, out)
		}
	}
}

func (s *Server) stop() {
	if s.child != nil {
		_ = s.child.Process.Signal(syscall.SIGQUIT) // at once; what it has is of no use any more
		_ = s.child.Wait()                          // it was killed
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir) // under the temporary directory of the system
	}
}

// Main runs the tests of a package that uses these servers, and its processes: see redistest.Main.
func Main(m *testing.M, roles map[string]func() error) {
	if os.Getenv(redistest.RoleEnv) != "" {
		redistest.Main(m, roles)
		return
	}
	code := m.Run()
	PostgreSQL.stop()
	MariaDB.stop()
	os.Exit(code)
}

// FreshSQLite is Fresh for a file of the test's, by the driver sqlite3. The file of a subtest may have a # in its path,
// at which the name would end: then runs would share one file, which stays.
func FreshSQLite(t testing.TB) (open func() *sql.DB) {
	return opener(t, "sqlite3", (&url.URL{Scheme: "file", Path: filepath.Join(t.TempDir(), "test.db"),
		RawQuery: "_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)"}).String())
}

// Each runs a test on each kind of database, by the name of its dialect. open connects to one with nothing in it.
func Each(t *testing.T, test func(t *testing.T, dialect string, open func() *sql.DB)) {
	for dialect, fresh := range map[string]func(testing.TB) func() *sql.DB{"SQLite": FreshSQLite,
		"PostgreSQL": PostgreSQL.Fresh, "MySQL": MariaDB.Fresh} {
		t.Run(dialect, func(t *testing.T) { test(t, dialect, fresh(t)) })
	}
}

// create creates a database with nothing in it, and returns its name for the driver.
func (s *Server) create() (dsn string, err error) {
	s.once.Do(func() { s.why = s.start() })
	if s.why != nil {
		return "", s.why
	}
	admin, err := sql.Open(s.Driver, s.dsn(s, s.admin))
	if err != nil {
		return "", err
	}
	defer func() { _ = admin.Close() }() // what it did is confirmed
	name := fmt.Sprint("t", s.bases.Add(1))
	_, err = admin.Exec("CREATE DATABASE " + name)
	return s.dsn(s, name), err
}

// Fresh is a way for a test to open a database with nothing in it. The test is skipped where there is no server, and
// fails there if redistest.RequireEnv is 1.
func (s *Server) Fresh(t testing.TB) (open func() *sql.DB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a process; leave -short out")
	}
	dsn, err := s.create()
	switch {
	case err == nil:
	case s.why != nil && os.Getenv(redistest.RequireEnv) != "1":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
	return opener(t, s.Driver, dsn)
}

func opener(t testing.TB, driver, dsn string) func() *sql.DB {
	return func() *sql.DB {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() }) // the server ends after it
		return db
	}
}
