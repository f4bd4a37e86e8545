//go:build unix

package main

import (
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
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

// server is what the flags say of the server.
type server struct {
	url           string
	prefix        string
	timeout       time.Duration
	ca, cert, key string
	verbose       bool
	log           io.Writer
}

func (s *server) flags(f *pflag.FlagSet) {
	f.StringVar(&s.url, "redis", "",
		"`URL` of the server (default $REDLATCH_REDIS, or redis://127.0.0.1:6379); see redlatch help connection")
	f.StringVar(&s.prefix, "prefix", "",
		"put this `text` before every name to make its key, as your programs do (KeyPrefix)")
	s.timeout = 500 * time.Millisecond
	f.Var(within(&s.timeout, time.Millisecond, century), "call-timeout",
		"how long one request to the server may take; it is repeated\nfor five times that, the retry timeout")
	f.StringVar(&s.ca, "tls-ca", "", "`file` with the certificates (PEM) that sign the server's; needs rediss://")
	f.StringVar(&s.cert, "tls-cert", "", "`file` with the client's certificate (PEM); needs rediss:// and --tls-key")
	f.StringVar(&s.key, "tls-key", "", "`file` with the key of --tls-cert")
	f.BoolVarP(&s.verbose, "verbose", "v", false, "say on stderr what happens")
}

// redacted is a URL without what may be secret, also if it is none.
func redacted(u string) string {
	scheme, rest, ok := strings.Cut(u, "://")
	if at := strings.LastIndex(rest, "@"); ok && at >= 0 {
		return scheme + "://***" + rest[at:]
	}
	return u
}

// address is the URL, and where it comes from.
func (s *server) address() (u, from string) {
	if s.url != "" {
		return s.url, "--redis"
	}
	if u := os.Getenv("REDLATCH_REDIS"); u != "" {
		return u, "REDLATCH_REDIS"
	}
	return "redis://127.0.0.1:6379", "--redis"
}

// option reads the flags and the environment. It sends nothing.
func (s *server) option() (rueidis.ClientOption, error) {
	u, from := s.address()
	o, err := rueidis.ParseURL(u)
	if err != nil {
		why := err.Error()
		if bad := (*url.Error)(nil); errors.As(err, &bad) {
			why = bad.Err.Error() // the whole has the URL with its password
		}
		if !strings.Contains(u, "://") {
			why = "it needs a scheme, such as redis://" + u
		}
		return o, usage("%s %q: %s", from, redacted(u), why)
	}
	if err := keyname.Check(s.prefix + "x"); err != nil {
		return o, usage("--prefix %q: %w", s.prefix, err)
	}
	if err := s.tls(&o, from, redacted(u)); err != nil {
		return o, err
	}
	for _, v := range []struct {
		to   *string
		from string
	}{
		{&o.Username, "REDLATCH_USERNAME"}, {&o.Password, "REDLATCH_PASSWORD"},
		{&o.Sentinel.Username, "REDLATCH_SENTINEL_USERNAME"}, {&o.Sentinel.Password, "REDLATCH_SENTINEL_PASSWORD"},
	} {
		if *v.to == "" {
			*v.to = os.Getenv(v.from)
		}
	}
	return o, nil
}

func (s *server) tls(o *rueidis.ClientOption, from, u string) error {
	for flag, v := range map[string]string{"--tls-ca": s.ca, "--tls-cert": s.cert, "--tls-key": s.key} {
		if v != "" && o.TLSConfig == nil {
			return usage("%s %q: %s %q speaks no TLS; its scheme must be rediss", flag, v, from, u)
		}
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
		KeyPrefix: s.prefix, CallTimeout: s.timeout, RetryTimeout: max(s.timeout, retries*min(s.timeout, time.Hour)),
		Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: level})),
		// No request of a web server waits for this answer.
		Limiters: func(o *ratelimit.Options) { o.AllowTimeout = s.timeout },
	}
	if change != nil {
		change(&opts)
	}
	red, err := redlatch.Open(context.Background(), o, opts)
	if err != nil {
		return nil, s.refused(err)
	}
	return red, nil
}

// refused is the error of an attempt to connect, with the flags that its options came from.
func (s *server) refused(err error) error {
	u, from := s.address()
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &untrusted):
		return usage("%s %s: %w (--tls-ca names a file with the certificates that sign the server's)", from, redacted(u), err)
	case errors.Is(err, redlatch.ErrDenied):
		return fmt.Errorf("%s %s: %w (the user is that of the URL, or of REDLATCH_USERNAME and REDLATCH_PASSWORD)", from,
			redacted(u), err)
	case exitCode(err) == exitUsage, exitCode(err) == exitSoftware: // trying again does not help
		return usage("%s %s: %w (the URL says rediss:// for TLS, redis:// for none; its path is the database; "+
			"?master_set= is for sentinels)", from, redacted(u), err)
	}
	return fmt.Errorf("%s %s: %w", from, redacted(u), err)
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
	s.close(ctx, red, err)
	if c := (coded{}); exitCode(err) == exitServer && !errors.As(err, &c) { // which may be a command's own
		err = fmt.Errorf("%w (--call-timeout %v)", err, s.timeout)
	}
	return err
}

// notHeld is the error of an acquisition.
type notHeld struct{ error }

func (e notHeld) Unwrap() error { return e.error }

// close waits until all holds are released, as Close does. Two releases are not tried for long: of a user who lacks a
// right, and of a hold that a server may have granted that did not answer for as long as --wait.
func (s *server) close(ctx context.Context, red *redlatch.Client, err error) {
	ctx = context.WithoutCancel(ctx)
	var none notHeld
	if errors.Is(err, redlatch.ErrDenied) || errors.As(err, &none) && script.NotAnswered(err) {
		short, cancel := context.WithTimeout(ctx, 2*s.timeout)
		defer cancel()
		ctx = short
	}
	red.Close(ctx)
}
