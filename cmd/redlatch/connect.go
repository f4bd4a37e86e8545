//go:build unix

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// seeConnection ends the error of an attempt to connect. That page names all flags and variables that may be wrong.
const seeConnection = " (see redlatch help connection)"

// server is what the flags say of the server.
type server struct {
	url           string
	prefix        string
	timeout       time.Duration
	ca, cert, key string
	verbose       bool
	log           io.Writer
	book          stock.Book // of restore
}

func (s *server) flags(f *pflag.FlagSet) {
	f.StringVar(&s.url, "redis", "",
		"`URL` of the server (default $REDLATCH_REDIS, or redis://127.0.0.1:6379); see redlatch help connection")
	f.StringVar(&s.prefix, "prefix", "",
		"`text` before every key, as in your programs (KeyPrefix)")
	s.timeout = 500 * time.Millisecond
	f.Var(within(&s.timeout, time.Millisecond, time.Hour), "call-timeout",
		"longest `time` for one request to the server; requests are\nretried for five times that")
	f.StringVar(&s.ca, "tls-ca", "", "`file` with the certificates (PEM) of the server's authority; needs rediss://")
	f.StringVar(&s.cert, "tls-cert", "", "`file` with the client's certificate (PEM); needs rediss:// and --tls-key")
	f.StringVar(&s.key, "tls-key", "", "`file` with the key of --tls-cert")
	f.BoolVarP(&s.verbose, "verbose", "v", false, "report on stderr what happens")
}

// redacted is a URL without what may be secret, also if it is none.
func redacted(u string) string {
	at := strings.LastIndex(u, "@")
	if at < 0 {
		return u
	}
	scheme, _, ok := strings.Cut(u[:at], "://")
	if !ok || strings.ContainsAny(scheme, ":/") {
		return "***" + u[at:]
	}
	return scheme + "://***" + u[at:]
}

// address is the URL, and where it comes from.
func (s *server) address() (u, from string) {
	if u := os.Getenv("REDLATCH_REDIS"); u != "" && s.url == "" {
		return u, "REDLATCH_REDIS"
	}
	return cmp.Or(s.url, "redis://127.0.0.1:6379"), "--redis"
}

// option reads the flags and the environment. It sends nothing.
func (s *server) option() (rueidis.ClientOption, error) {
	u, from := s.address()
	o, err := rueidis.ParseURL(u)
	if err != nil {
		if bad := (*url.Error)(nil); errors.As(err, &bad) {
			err = bad.Err // the whole has the URL with its password
		}
		if strings.Contains(err.Error(), "@") { // a password before it, in the wrong part of the URL
			err = errors.New("not the URL of a server")
		}
		return o, usage("%s %q: %w%s", from, redacted(u), err, seeConnection)
	}
	if err := keyname.Check(s.prefix + "x"); err != nil {
		return o, usage("--prefix %q: %w", s.prefix, err)
	}
	if err := s.tls(&o, from, redacted(u)); err != nil {
		return o, err
	}
	o.Username = cmp.Or(o.Username, os.Getenv("REDLATCH_USERNAME"))
	o.Password = cmp.Or(o.Password, os.Getenv("REDLATCH_PASSWORD"))
	o.Sentinel.Username = os.Getenv("REDLATCH_SENTINEL_USERNAME")
	o.Sentinel.Password = os.Getenv("REDLATCH_SENTINEL_PASSWORD")
	return o, nil
}

func (s *server) tls(o *rueidis.ClientOption, from, u string) error {
	if s.ca+s.cert != "" && o.TLSConfig == nil {
		return usage("--tls-ca, --tls-cert: %s %q is without TLS; its scheme must be rediss", from, u)
	}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return usage("--tls-ca %q: %w", s.ca, err)
		}
		o.TLSConfig.RootCAs = x509.NewCertPool()
		if !o.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return usage("--tls-ca %q: no certificate in it", s.ca)
		}
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return usage("--tls-cert %q, --tls-key %q: %w", s.cert, s.key, err)
		}
		o.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	if o.TLSConfig != nil && o.Sentinel.MasterSet != "" {
		o.Sentinel.TLSConfig = o.TLSConfig
	}
	return nil
}

// place tells one server, database and prefix from another, as the flags have it: names are shared within it.
func (s *server) place(o rueidis.ClientOption) string {
	return fmt.Sprint(slices.Sorted(slices.Values(o.InitAddress)), o.SelectDB, o.Sentinel.MasterSet, s.prefix)
}

// retries is for how many call timeouts a call of a command is repeated that does not wait: no one waits for it as for
// a web page.
const retries = 5

// open connects. change may set options of the packages.
func (s *server) open(o rueidis.ClientOption, change func(*redlatch.Options)) (*redlatch.Client, error) {
	level := slog.LevelError // a lost hold has a message of its own, and check warns of what the server is set to
	if s.verbose {
		level = slog.LevelInfo
	}
	opts := redlatch.Options{
		KeyPrefix: s.prefix, CallTimeout: s.timeout, RetryTimeout: retries * s.timeout,
		Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: level})),
		// No request of a web server waits for this answer.
		Limiters: func(o *ratelimit.Options) { o.AllowTimeout = s.timeout },
		Sales:    func(o *stock.Options) { o.Books = func(string) stock.Book { return s.book } },
	}
	if change != nil {
		change(&opts)
	}
	red, err := redlatch.Open(context.Background(), o, opts)
	if err != nil {
		u, from := s.address()
		err = fmt.Errorf("%s %s: %w%s", from, redacted(u), err, seeConnection)
		if exitCode(err) == exitSoftware { // such as TLS with a server that has none
			err = coded{exitUsage, err}
		}
		return nil, err
	}
	return red, nil
}

// with opens, runs fn and closes. change may set options of the packages.
func (s *server) with(ctx context.Context, change func(*redlatch.Options), fn func(red *redlatch.Client) error) error {
	o, err := s.option()
	if err != nil {
		return err
	}
	red, err := s.open(o, change)
	if err != nil {
		return err
	}
	err = fn(red)
	s.close(ctx, red)
	if c := (coded{}); exitCode(err) == exitServer && !errors.As(err, &c) { // which may be a command's own
		err = fmt.Errorf("%w (--call-timeout %v)", err, s.timeout)
	}
	return err
}

// close waits for the release of all holds for as long as one call is repeated. What is held then ends with its lease.
func (s *server) close(ctx context.Context, red *redlatch.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retries*s.timeout)
	defer cancel()
	red.Close(ctx)
}
