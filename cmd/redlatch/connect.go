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
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
)

const connectionHelp = `CONNECTION
  --redis, or REDLATCH_REDIS, is a URL as rueidis parses it. Without either it is redis://127.0.0.1:6379.

    redis://user:password@host:6379/0            one server, database 0
    rediss://host:6379                           TLS; --tls-ca, --tls-cert, --tls-key for certificates of your own,
                                                 ?skip_verify=true for none
    redis://host1:7000?addr=host2:7000           a Cluster: some of its nodes
    redis://host1:26379?addr=host2:26379&master_set=mymaster
                                                 Sentinel: the sentinels, and the name of the primary
    unix:///run/redis/redis.sock?db=0            a socket

  The URL of a process can be read by all users of its machine, its environment only by its own user: so give passwords by
  REDLATCH_REDIS, or by REDLATCH_USERNAME and REDLATCH_PASSWORD, which fill in what the URL leaves out. Those of the sentinels are
  REDLATCH_SENTINEL_USERNAME and REDLATCH_SENTINEL_PASSWORD.

  All programs that share a name must have the same server, database and key prefix.`

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
	f.DurationVar(&s.timeout, "call-timeout", 500*time.Millisecond, "how long one request to the server may take")
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
	if s.timeout < time.Millisecond {
		return o, usage("--call-timeout %v: must be at least 1ms", s.timeout)
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
	o.ClientName = cmp.Or(o.ClientName, clientName)
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
	switch {
	case (s.cert == "") != (s.key == ""):
		return usage("--tls-cert %q, --tls-key %q: one needs the other", s.cert, s.key)
	case s.cert != "":
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
	addrs := slices.Clone(o.InitAddress)
	slices.Sort(addrs)
	return fmt.Sprintf("%s/%d %s %s", strings.Join(slices.Compact(addrs), ","), o.SelectDB, o.Sentinel.MasterSet, s.prefix)
}

// clientName is that of this command's connections in CLIENT LIST.
const clientName = "redlatch"

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
	if s.unnamed(&o, err) {
		red, err = redlatch.Open(context.Background(), o, opts)
	}
	if err != nil {
		u, _ := s.address()
		// what trying again does not help: a certificate that is not trusted, or a URL for another kind of server
		if exitCode(err) == exitSoftware {
			return nil, usage("%s: %w", redacted(u), err)
		}
		return nil, fmt.Errorf("%s: %w", redacted(u), err)
	}
	return red, nil
}

// unnamed takes the name of this command from o, and reports so, if err says that a proxy refuses to take one. A name
// that the URL has stays.
func (s *server) unnamed(o *rueidis.ClientOption, err error) bool {
	var re *rueidis.RedisError
	if o.ClientName != clientName || !errors.As(err, &re) || !script.Unsupported(re) ||
		!strings.Contains(strings.ToUpper(re.Error()), "CLIENT") {
		return false
	}
	o.ClientName = ""
	return true
}

// with opens, runs fn and closes.
func (s *server) with(ctx context.Context, fn func(red *redlatch.Client) error) error {
	o, err := s.option()
	if err != nil {
		return err
	}
	red, err := s.open(o, nil)
	if err != nil {
		return err
	}
	err = fn(red)
	s.close(ctx, red, err)
	return err
}

// close waits until what is held is released, as Close does. What the user may not do it may not take back either, so
// that is not tried for long.
func (s *server) close(ctx context.Context, red *redlatch.Client, err error) {
	ctx = context.WithoutCancel(ctx)
	if errors.Is(err, redlatch.ErrDenied) {
		short, cancel := context.WithTimeout(ctx, 2*s.timeout)
		defer cancel()
		ctx = short
	}
	red.Close(ctx)
}
