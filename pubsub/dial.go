package pubsub

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// topologyRefresh is what rueidis advises.
const topologyRefresh = 5 * time.Second

// Dial connects with o and makes a hub on the client. The client belongs to the hub: Client returns it, Close closes
// it. Most programs want Dial: it refuses what redlatch cannot work with, names the field that is wrong, and observes
// invalidations in a Cluster. A program that has a client already, and closes it itself, gives it to [New].
//
// The errors are:
//
//   - ErrUnavailable: there is no connection, or the server is not ready because it is loading or has too many clients.
//     Trying again is safe and may help. After every other error the same attempt will fail again.
//   - ErrDenied: the server does not know the user, or the user lacks a right that connecting needs.
//   - ErrInvalidOption: o cannot be used, and nothing was sent; or the server cannot do what o says (SelectDB, or
//     client-side caching with the options that are for it); or the server is older than Redis 7.0, or a sentinel
//     though Sentinel.MasterSet is empty, or a proxy that does not know HELLO (InitAddress); or only one side speaks
//     TLS (TLSConfig); or it may evict keys (Options.Strict), or forget what it has confirmed (Options.Durable). The
//     text names the field.
//   - Any other error is the server's refusal of what o says, and its text says which.
//
// o.ConnLifetime is refused. When a connection's lifetime ends while a reply is awaited, rueidis sends the script again
// unasked. Redlatch's scripts may run twice, but the second answer can be "lost" for an unlock that succeeded.
// o.ReplicaOnly is refused too, because every script writes.
//
// Behind Sentinel the client asks every five seconds which server is the primary, unless
// o.Sentinel.TopologyRefreshInterval says otherwise. The sentinels announce a new primary once. A client that missed
// the message would stay with a primary that has become a replica.
//
// What the server refuses and can be done without is logged, and is in Stats.Lacks. Where it has no client-side
// caching, or speaks RESP2 only, Dial connects as with DisableCache and AlwaysRESP2, unless o says what caching is to
// be like (ClientTrackingOptions, OnInvalidations, NewCacheStoreFn).
//
// Invalidations are observed in a Cluster. Elsewhere rlock has a connection of its
// own for them: a client that observes invalidations pipelines on every connection, which makes each single call
// slower.
//
// ctx bounds connecting, and nothing later. If it ends first the error is ErrUnavailable, joined with ctx's error and
// cause, and nothing is left open. Without an end, a server that does not answer holds Dial up for 6 s at each address,
// or for a second more than o.Dialer.Timeout.
func Dial(ctx context.Context, o rueidis.ClientOption, opts Options) (*Hub, error) {
	if err := checkOption(o); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	type result struct {
		hub *Hub
		err error
	}
	made := make(chan result, 1)
	go func() {
		hub, err := dial(ctx, o, opts)
		made <- result{hub, err}
	}()
	select {
	case r := <-made:
		if r.err != nil && ctx.Err() != nil {
			return nil, ended(ctx)
		}
		return r.hub, r.err
	case <-ctx.Done():
		go func() {
			if r := <-made; r.hub != nil {
				_ = r.hub.Close(context.Background()) // it has no subscription yet
			}
		}()
		return nil, ended(ctx)
	}
}

// ended is the error of a Dial whose ctx ended first.
func ended(ctx context.Context) error {
	return fmt.Errorf("pubsub: %w: %w", errs.ErrUnavailable, errs.Ended(ctx))
}

func dial(ctx context.Context, o rueidis.ClientOption, opts Options) (*Hub, error) {
	if o.Sentinel.MasterSet != "" && o.Sentinel.TopologyRefreshInterval == 0 {
		o.Sentinel.TopologyRefreshInterval = topologyRefresh
	}
	newClient := opts.NewClient
	if newClient == nil {
		newClient = rueidis.NewClient
	}
	opts.dials = new(errs.Dials)
	strict, durable := opts.Strict, opts.Durable
	opts.Strict, opts.Durable = false, false // New cannot ask
	opts.lacks = errs.NewLacks(cmp.Or(opts.Logger, slog.Default()))
	a := attempt{ctx: ctx}
	defer a.end()
	counted := counting(o, opts.dials, &a)
	c, err := newClient(counted)
	for err != nil && ctx.Err() == nil && without(&counted, err) {
		opts.lacks.Add(errs.LackTracking, words(err))
		c, err = newClient(counted)
	}
	if err == nil && c.Mode() == rueidis.ClientModeCluster && !counted.DisableCache {
		// only now is it known to be one, and the callback is an option of the client
		c.Close()
		opts.inv = &invalidations{}
		c, err = newClient(opts.inv.option(counted))
	}
	if err != nil {
		return nil, fmt.Errorf("pubsub: %w", refusal(o, err))
	}
	hub, err := New(c, opts)
	if err != nil {
		c.Close()
		return nil, err
	}
	if err := hub.unfit(ctx, cmp.Or(opts.CallTimeout, defaultCallTimeout), strict, durable); err != nil {
		_ = hub.Close(context.WithoutCancel(ctx)) // it has no subscription yet
		c.Close()
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	hub.owned, hub.plain = true, opts.NewClient == nil
	return hub, nil
}

// without takes from o what the server refused by err, and reports whether there was such: client-side caching, or
// RESP3, without which there is no caching either. A server that is busy or loading has refused nothing for good.
func without(o *rueidis.ClientOption, err error) bool {
	if o.ClientTrackingOptions != nil || o.OnInvalidations != nil || o.NewCacheStoreFn != nil { // it is wanted
		return false
	}
	var re *rueidis.RedisError
	switch {
	case errors.Is(err, rueidis.ErrNoCache) && !o.DisableCache && !script.NotAnswered(script.Explain("connect", err)):
		o.DisableCache = true
	case errors.As(err, &re) && !o.AlwaysRESP2 && strings.HasPrefix(re.Error(), "NOPROTO"):
		o.AlwaysRESP2, o.DisableCache = true, true
	default:
		return false
	}
	return true
}

// words are what the server said, without what rueidis advises.
func words(err error) error {
	if text, _, more := strings.Cut(err.Error(), "\n"); more {
		return errors.New(text)
	}
	if errors.Is(err, rueidis.ErrNoCache) {
		return errors.New("the connection has no RESP3")
	}
	return err
}

// attempt ends the connections that a Dial makes when its ctx ends: rueidis heeds no context while it makes a client.
type attempt struct {
	ctx context.Context

	mu    sync.Mutex
	over  bool
	stops []func() bool
}

// connect calls dial. Until the attempt is over, the end of its ctx ends what dial does, and closes what it has made.
func (a *attempt) connect(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	a.mu.Lock()
	over := a.over
	a.mu.Unlock()
	if over {
		return dial(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)() //nolint:contextcheck // the call of Dial, which ends its connections
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		end := func() { _ = conn.Close() }
		a.stops = append(a.stops, context.AfterFunc(a.ctx, end)) //nolint:contextcheck // as above
	}
	return conn, nil
}

// end has ctx end nothing from now on.
func (a *attempt) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	for _, stop := range a.stops {
		stop()
	}
	a.stops = nil
}

// counting is o with dials knowing of the connections that the client makes: see script.Runner.HeedDials. Those that it
// makes during a belong to it.
func counting(o rueidis.ClientOption, dials *errs.Dials, a *attempt) rueidis.ClientOption {
	withCtx, without := o.DialCtxFn, o.DialFn
	o.DialCtxFn = func(ctx context.Context, to string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		return dials.Dial(func() (net.Conn, error) {
			return a.connect(ctx, func(ctx context.Context) (net.Conn, error) {
				switch {
				case withCtx != nil:
					return withCtx(ctx, to, d, config)
				case without != nil:
					return without(to, d, config)
				case config != nil:
					return (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, "tcp", to)
				}
				return d.DialContext(ctx, "tcp", to)
			})
		})
	}
	return o
}

var errSentinel = errs.InvalidOption("InitAddress", "a sentinel",
	"a server, or Sentinel.MasterSet the name of the sentinel's primary")

var errHello = errs.InvalidOption("InitAddress", "a proxy, or a server, that does not know HELLO", "one that does")

// unfit refuses a sentinel, which knows no scripts, and a server that is older than Redis 7.0. Its scripts hide why a
// command of theirs was refused, so that a lock would fail for good where it is to try again, and it has no sharded
// channels. What does not say its version, because it refuses INFO or does not answer in time, is not refused. Valkey
// says redis_version:7.2.4, whatever its own. If strict, it refuses servers that may evict keys, too; if durable, those
// that may forget what they have confirmed.
func (h *Hub) unfit(ctx context.Context, limit time.Duration, strict, durable bool) error {
	c := h.client
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if strict {
		policy, err := script.EvictionPolicy(ctx, c)
		if policy != "" {
			return errs.InvalidOption("the server's maxmemory-policy", policy, "noeviction (Options.Strict)")
		}
		if err != nil {
			return unseen("Strict", err)
		}
	}
	if durable {
		s, err := script.Forgetful(ctx, c)
		if s != nil {
			return errs.InvalidOption("the server's "+s.Name, s.Value, s.Must+" (Options.Durable)")
		}
		if err != nil {
			return unseen("Durable", err)
		}
	}
	text, err := c.Do(ctx, c.B().Info().Section("server").Build()).ToString()
	if script.Unsupported(err) {
		h.lacks.Add(errs.LackInfo, err)
	}
	if err != nil {
		return nil
	}
	for line := range strings.Lines(text) {
		switch strings.TrimSpace(line) {
		case "redis_mode:sentinel", "server_mode:sentinel": // the second is Valkey's word
			return errSentinel
		}
		version, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:")
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); ok && err == nil && n < 7 {
			return errs.InvalidOption("InitAddress", "a server of Redis "+version, "one of Redis 7.0 or later, or Valkey")
		}
	}
	return nil
}

// unseen is the error of an option for which the server's settings have to be seen, and cannot be by err.
func unseen(option string, err error) error {
	if _, refused := rueidis.IsRedisErr(err); refused {
		return errs.InvalidOption("the server's INFO", err, "allowed, to see the server's settings (Options."+option+")")
	}
	return fmt.Errorf("%w: INFO, for Options.%s: %w", errs.ErrUnavailable, option, err)
}

// checkOption refuses what cannot be used, whether rueidis would refuse it later or not.
func checkOption(o rueidis.ClientOption) error {
	switch {
	case o.ConnLifetime != 0:
		return errs.InvalidOption("ConnLifetime", o.ConnLifetime, "0 (rueidis may run a script twice when it ends)")
	case o.ReplicaOnly:
		return errs.InvalidOption("ReplicaOnly", true, "false (locks and counters write)")
	case len(o.InitAddress) == 0:
		return errs.InvalidOption("InitAddress", "empty", "one host:port or more")
	}
	if o.DialFn != nil || o.DialCtxFn != nil {
		return nil // the program's own dialer may understand other addresses
	}
	for _, addr := range o.InitAddress {
		if strings.Contains(addr, "://") { // not shown: there may be a password in it
			return errs.InvalidOption("InitAddress", "a URL", "host:port (rueidis.ParseURL makes options of a URL)")
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return errs.InvalidOption("InitAddress", fmt.Sprintf("%q", addr), "host:port")
		}
	}
	return nil
}

// optionErrors are rueidis' own refusals of options.
var optionErrors = []error{
	rueidis.ErrNoAddr, rueidis.ErrWrongPipelineMultiplex, rueidis.ErrReplicaOnlyNotSupported, rueidis.ErrNoSendToReplicas,
	rueidis.ErrSendToReplicasNotSet, rueidis.ErrInvalidShardsRefreshInterval, rueidis.ErrInvalidTopologyRefreshInterval,
	rueidis.ErrReplicaOnlyConflict, rueidis.ErrReplicaOnlyConflictWithReplicaSelector,
	rueidis.ErrReplicaOnlyConflictWithReadNodeSelector, rueidis.ErrReplicaSelectorConflictWithReadNodeSelector,
}

// refusal is the error for one of rueidis.NewClient. It says what to do where trying again does not help.
func refusal(o rueidis.ClientOption, err error) error {
	if no := script.Refused(err); no != nil {
		return no
	}
	for _, of := range optionErrors {
		if errors.Is(err, of) {
			return fmt.Errorf("%w: %w", errs.ErrInvalidOption, err)
		}
	}
	var cert *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	if errors.As(err, &cert) || errors.As(err, &header) {
		return fmt.Errorf("no TLS with this server: see TLSConfig: %w", err)
	}
	var re *rueidis.RedisError
	if !errors.As(err, &re) {
		if why := crossed(o, err); why != "" {
			return fmt.Errorf("%w: %s: %w", errs.ErrInvalidOption, why, err)
		}
		if hangsUp(o) {
			return fmt.Errorf("%w: %w", errHello, err)
		}
		return fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
	}
	switch text := re.Error(); {
	case strings.Contains(strings.ToUpper(text), "HELLO") && script.Unsupported(re):
		return fmt.Errorf("%w: %w", errHello, err)
	case o.Sentinel.MasterSet == "" && strings.Contains(text, "unknown command 'CLUSTER'"):
		// which rueidis asks where it has several addresses
		return fmt.Errorf("%w: %w", errSentinel, err)
	case script.NotAnswered(script.Explain("connect", re)), strings.Contains(text, "max number of clients"):
		return fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
	}
	return fmt.Errorf("the server refuses these options: %w", err)
}

// probeTimeout bounds each step of finding out whether a server speaks TLS.
const probeTimeout = time.Second

// crossed says why, if one side speaks TLS and the other does not. The error of rueidis does not tell: a server without
// TLS takes the handshake for a command and waits for the rest of it until the client's deadline, and a server with TLS
// hangs up. So the server is asked the other way, without a password, and only after the way of the options has failed.
func crossed(o rueidis.ClientOption, err error) (why string) {
	var op *net.OpError
	if o.DialFn != nil || o.DialCtxFn != nil || errors.As(err, &op) && op.Op == "dial" && !op.Timeout() {
		return "" // there is no server to ask
	}
	if errors.Is(err, rueidis.ErrNoCache) {
		return "" // the server has answered
	}
	config, field := o.TLSConfig, "TLSConfig"
	if o.Sentinel.MasterSet != "" {
		config, field = o.Sentinel.TLSConfig, "Sentinel.TLSConfig"
	}
	for _, addr := range o.InitAddress {
		conn, err := net.DialTimeout("tcp", addr, probeTimeout)
		if err != nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(probeTimeout)) // a TCP connection that is open takes one
		if config != nil {
			reply := make([]byte, 1)
			_, _ = conn.Write([]byte("PING\r\n")) // if it fails, nothing can be read
			if n, _ := conn.Read(reply); n == 1 && (reply[0] == '+' || reply[0] == '-') {
				why = fmt.Sprintf("%s is set, and the server at %s speaks without TLS", field, addr)
			}
		} else {
			// nothing is sent over the connection, so it does not matter whose certificate that is
			err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
			var alert tls.AlertError
			if err == nil || errors.As(err, &alert) {
				why = fmt.Sprintf("%s is nil, and the server at %s speaks TLS", field, addr)
			}
		}
		_ = conn.Close() // it is over, whatever it says
		return why
	}
	return ""
}

// hangsUp reports whether the server answers PING, and ends the connection at HELLO, as a proxy does that knows no such
// command: trying again is in vain. It is asked only where rueidis could not connect.
func hangsUp(o rueidis.ClientOption) bool {
	if o.DialFn != nil || o.DialCtxFn != nil || o.Sentinel.MasterSet != "" {
		return false
	}
	conn, err := net.DialTimeout("tcp", o.InitAddress[0], probeTimeout)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(probeTimeout)) // a TCP connection that is open takes one
	if o.TLSConfig != nil {
		conn = tls.Client(conn, o.TLSConfig)
	}
	reply := make([]byte, 512)
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return false
	}
	if n, _ := conn.Read(reply); n == 0 {
		return false
	}
	_, _ = conn.Write([]byte("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n")) // if it fails, nothing can be read
	n, err := conn.Read(reply)
	var slow net.Error
	return n == 0 && !(errors.As(err, &slow) && slow.Timeout())
}
