//go:build unix && !solaris && !aix

package main

import (
	"context"
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"
	"google.golang.org/grpc"

	"github.com/redlatch/redlatch"
	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/contrib/fence/grpcfence"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/databases"
	"github.com/redlatch/redlatch/internal/redistest/objectstore"
)

// kinds are the guards, by name.
var kinds = []string{"postgresql-fences", "postgresql-rows", "mariadb-fences", "mariadb-rows", "sqlite-fences",
	"sqlite-rows", "redis", "http", "grpc", "objects", "files"}

// sites are where the accounts are. Those of guards that are not asked for are empty.
type sites struct {
	Redis, PostgreSQL, MariaDB, SQLite, HTTP, GRPC, FencedGRPC, Objects, Files string
}

// serve starts what the guards need. end ends it, after an error, too.
func serve(guards []string) (s sites, end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range slices.Backward(ends) {
			f()
		}
	}
	needs := func(prefix string) bool {
		return slices.ContainsFunc(guards, func(g string) bool { return strings.HasPrefix(g, prefix) })
	}
	server, stop, err := redistest.Launch(func(host, port, dir string) []string {
		return []string{"--bind", host, "--port", port, "--dir", dir, "--save", "", "--logfile", filepath.Join(dir, "log")}
	})
	if err != nil {
		return s, end, err
	}
	ends = append(ends, stop)
	s.Redis = server.Addr()
	dir, err := os.MkdirTemp("", "paused-")
	if err != nil {
		return s, end, err
	}
	ends = append(ends, func() { os.RemoveAll(dir) })
	s.Files = filepath.Join(dir, "files")
	if err := os.Mkdir(s.Files, 0o755); err != nil {
		return s, end, err
	}
	if needs("sqlite") {
		s.SQLite = "file:" + filepath.Join(dir, "accounts.db") +
			"?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)"
	}
	if needs("postgresql") || needs("mariadb") {
		ends = append(ends, databases.Stop)
	}
	if needs("postgresql") {
		if s.PostgreSQL, err = databases.PostgreSQL.Create(); err != nil {
			return s, end, err
		}
	}
	if needs("mariadb") {
		if s.MariaDB, err = databases.MariaDB.Create(); err != nil {
			return s, end, err
		}
	}
	v := &vault{n: map[string]int64{}}
	for _, site := range []struct {
		address *string
		handler http.Handler
	}{{&s.HTTP, v.overHTTP()}, {&s.Objects, &objectstore.Bucket{}}} {
		l, err := redistest.Listen()
		if err != nil {
			return s, end, err
		}
		h := &http.Server{Handler: site.handler}
		go h.Serve(l)
		ends = append(ends, func() { h.Close() })
		*site.address = "http://" + l.Addr().String()
	}
	for _, site := range []struct {
		address *string
		server  *grpc.Server
	}{{&s.GRPC, v.overGRPC()}, {&s.FencedGRPC, v.overGRPC(fencedGRPC()...)}} {
		l, err := redistest.Listen()
		if err != nil {
			return s, end, err
		}
		go site.server.Serve(l)
		ends = append(ends, site.server.Stop)
		*site.address = l.Addr().String()
	}
	return s, end, s.createTables()
}

// databases are those that are there, by the prefix of their guards.
func (s sites) databases() map[string]inSQL {
	found := map[string]inSQL{}
	for prefix, d := range map[string]struct {
		dialect     redlatchfence.Dialect
		driver, dsn string
	}{
		"postgresql": {redlatchfence.PostgreSQL, databases.PostgreSQL.Driver, s.PostgreSQL},
		"mariadb":    {redlatchfence.MySQL, databases.MariaDB.Driver, s.MariaDB},
		"sqlite":     {redlatchfence.SQLite, "sqlite3", s.SQLite},
	} {
		if d.dsn == "" {
			continue
		}
		db, err := sql.Open(d.driver, d.dsn)
		if err != nil {
			panic(err) // the driver is not there
		}
		db.SetMaxOpenConns(16)
		db.SetMaxIdleConns(16)
		found[prefix] = inSQL{db: db, dialect: d.dialect}
	}
	return found
}

func (s sites) createTables() error {
	for _, a := range s.databases() {
		defer a.db.Close()
		if err := a.dialect.Create(context.Background(), a.db); err != nil {
			return err
		}
		if _, err := a.db.Exec(createTable); err != nil {
			return err
		}
	}
	return nil
}

// open returns the accounts of each guard and way.
func (s sites) open(red *redlatch.Client) (accounts map[string]account, end func(), err error) {
	plain, err := dial(s.GRPC)
	if err != nil {
		return nil, nil, err
	}
	fenced, err := dial(s.FencedGRPC, grpc.WithUnaryInterceptor(grpcfence.UnaryClient))
	if err != nil {
		return nil, nil, err
	}
	found := s.databases()
	end = func() {
		plain.Close()
		fenced.Close()
		for _, a := range found {
			a.db.Close()
		}
	}
	accounts = map[string]account{}
	for _, way := range ways {
		accounts["redis-"+way] = inRedis{red.Hub().Client(), way}
		accounts["http-"+way] = inHTTP{s.HTTP, way}
		accounts["grpc-"+way] = inGRPC{plain, fenced, way}
		accounts["objects-"+way] = inObjects{redlatchfence.S3{Bucket: s.Objects}, way}
		accounts["files-"+way] = inFiles{s.Files, way}
		for prefix, a := range found {
			a.way = way
			accounts[prefix+"-fences-"+way] = a
			a.rows = true
			accounts[prefix+"-rows-"+way] = a
		}
	}
	return accounts, end, nil
}
