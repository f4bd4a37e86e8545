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

// topologyRefreshInterval is the interval that rueidis advises.
const topologyRefreshInterval = 5 * time.Second

// Dial connects with option and makes a hub on the client. Client returns the client, and Close closes it. Most
// programs want Dial: it refuses servers and options with which redlatch cannot work, and names the field that is
// wrong. A program that has a client already, and closes it itself, gives it to [New]. See "Connecting" in the package
// documentation.
//
// The errors are:
//
//   - ErrUnavailable: there is no connection, or the server is not ready because it is loading or has too many clients.
//     Trying again is safe and may help. After every other error the same attempt will fail again.
//   - ErrDenied: the server does not know the user, or the user lacks a right that connecting needs.
//   - ErrInvalidOption: option or opts cannot be used with this server, or with any server. The text names the field.
//   - Any other error is the server's refusal of an option, and its text says which.
//
// ctx bounds connecting, and nothing later. If it ends first the error is ErrUnavailable, joined with ctx's error and
// cause, and nothing is left open. Without an end, a server that does not answer holds Dial up for 6 s at each address,
// or for a second more than option.Dialer.Timeout.
func Dial(ctx context.Context, option rueidis.ClientOption, opts Options) (*Hub, error) {
	if err := checkOption(option); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	type result struct {
		hub *Hub
		err error
	}
	made := make(chan result, 1)
	go func() {
		hub, err := dial(ctx, option, opts)
		made <- result{hub, err}
	}()
	select {
	case dialed := <-made:
		if dialed.err != nil && ctx.Err() != nil {
			return nil, contextError(ctx)
		}
		return dialed.hub, dialed.err
	case <-ctx.Done():
		go func() {
			if dialed := <-made; dialed.hub != nil {
				_ = dialed.hub.Close(context.Background()) // it has no subscription yet
			}
		}()
		return nil, contextError(ctx)
	}
}

// contextError is the error of a Dial whose ctx ended first.
func contextError(ctx context.Context) error {
	return fmt.Errorf("pubsub: %w: %w", errs.ErrUnavailable, errs.Ended(ctx))
}

func dial(ctx context.Context, option rueidis.ClientOption, opts Options) (*Hub, error) {
	if option.Sentinel.MasterSet != "" && option.Sentinel.TopologyRefreshInterval == 0 {
		option.Sentinel.TopologyRefreshInterval = topologyRefreshInterval
	}
	newClient := opts.NewClient
	if newClient == nil {
		newClient = rueidis.NewClient
	}
	opts.dials = new(errs.Dials)
	strict, durable := opts.Strict, opts.Durable
	opts.Strict, opts.Durable = false, false // New refuses them, because it cannot check the server
	opts.lacks = errs.NewLacks(cmp.Or(opts.Logger, slog.Default()))
	dialing := attempt{ctx: ctx}
	defer dialing.detach()
	counted := withDialTracking(option, opts.dials, &dialing)
	client, err := newClient(counted)
	for err != nil && ctx.Err() == nil && disableRefused(&counted, err) {
		opts.lacks.Add(errs.LackTracking, serverMessage(err))
		client, err = newClient(counted)
	}
	if err == nil && client.Mode() == rueidis.ClientModeCluster && !counted.DisableCache {
		// only a connected client knows that it is a Cluster's, and the callback is an option of the client
		client.Close()
		opts.invalidations = &invalidations{}
		client, err = newClient(opts.invalidations.withObservers(counted))
	}
	if err != nil {
		return nil, fmt.Errorf("pubsub: %w", connectError(option, err))
	}
	if canHaveSolo(option) {
		opts.solo = script.NewSolo(client, opts.dials)
	}
	hub, err := New(client, opts)
	if err != nil {
		client.Close()
		return nil, err
	}
	if err := hub.checkServer(ctx, cmp.Or(opts.CallTimeout, defaultCallTimeout), strict, durable); err != nil {
		_ = hub.Close(context.WithoutCancel(ctx)) // it has no subscription yet
		client.Close()
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	hub.ownsClient = true
	return hub, nil
}

// canHaveSolo reports whether solo calls may have a connection: by the other options calls never share a connection, or
// all connections pipeline, or the program counts the connections of the pool to which this one would belong.
func canHaveSolo(option rueidis.ClientOption) bool {
	return !option.DisableAutoPipelining && !option.AlwaysPipelining && option.OnInvalidations == nil &&
		option.BlockingPoolSize == 0
}

// disableRefused removes the option that the server refused with err, and reports whether there was one: client-side
// caching, or RESP3, without which there is no caching either. It keeps options that the program has chosen. A server
// that is busy or loading has refused nothing for good.
func disableRefused(option *rueidis.ClientOption, err error) bool {
	// the program wants caching
	if option.ClientTrackingOptions != nil || option.OnInvalidations != nil || option.NewCacheStoreFn != nil {
		return false
	}
	var redisErr *rueidis.RedisError
	switch {
	case errors.Is(err, rueidis.ErrNoCache) && !option.DisableCache && !script.NotAnswered(script.Explain("connect", err)):
		option.DisableCache = true
	case errors.As(err, &redisErr) && !option.AlwaysRESP2 && strings.HasPrefix(redisErr.Error(), "NOPROTO"):
		option.AlwaysRESP2, option.DisableCache = true, true
	default:
		return false
	}
	return true
}

// serverMessage returns the server's message, without the advice that rueidis appends.
func serverMessage(err error) error {
	if text, _, more := strings.Cut(err.Error(), "\n"); more {
		return errors.New(text)
	}
	if errors.Is(err, rueidis.ErrNoCache) {
		return errors.New("the connection has no RESP3")
	}
	return err
}

// attempt ends the connections of a Dial when its ctx ends. Without it they would stay open, because rueidis takes no
// context while it makes a client.
type attempt struct {
	ctx context.Context

	mu        sync.Mutex
	detached  bool
	stopFuncs []func() bool
}

// connect calls dial. Until the attempt is detached, the end of its ctx ends dial, and closes the connection that dial
// has made.
func (a *attempt) connect(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	a.mu.Lock()
	over := a.detached
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
	if !a.detached {
		end := func() { _ = conn.Close() }
		a.stopFuncs = append(a.stopFuncs, context.AfterFunc(a.ctx, end)) //nolint:contextcheck // as above
	}
	return conn, nil
}

// detach makes the end of ctx close no connection from now on.
func (a *attempt) detach() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.detached = true
	for _, stop := range a.stopFuncs {
		stop()
	}
	a.stopFuncs = nil
}

// withDialTracking returns option with dial functions that report the client's connections to dials: see
// script.Runner.HeedDials. dialing ends the connections that the client makes before dialing is detached.
func withDialTracking(option rueidis.ClientOption, dials *errs.Dials, dialing *attempt) rueidis.ClientOption {
	dialCtxFn, dialFn := option.DialCtxFn, option.DialFn
	option.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		return dials.Dial(func() (net.Conn, error) {
			return dialing.connect(ctx, func(ctx context.Context) (net.Conn, error) {
				switch {
				case dialCtxFn != nil:
					return dialCtxFn(ctx, addr, dialer, config)
				case dialFn != nil:
					return dialFn(addr, dialer, config)
				case config != nil:
					return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", addr)
				}
				return dialer.DialContext(ctx, "tcp", addr)
			})
		})
	}
	return option
}

var errIsSentinel = errs.InvalidOption("InitAddress", "a sentinel",
	"a server, or Sentinel.MasterSet the name of the sentinel's primary")

var errNoHello = errs.InvalidOption("InitAddress", "a server or proxy without HELLO", "one that supports HELLO")

// checkServer returns an error if the server is unfit:
//
//   - It is a sentinel, which runs no scripts.
//   - It is older than Redis 7.0. Its scripts do not report why it refused a command, so that a lock would fail for
//     good instead of trying again, and it has no sharded channels. Valkey reports redis_version:7.2.4 whatever its own
//     version.
//   - If strict, it may evict keys.
//   - If durable, it may forget writes that it has confirmed.
//
// A server whose version is unknown, because it refuses INFO or does not answer in time, passes.
func (h *Hub) checkServer(ctx context.Context, limit time.Duration, strict, durable bool) error {
	client := h.client
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if strict {
		policy, err := script.EvictionPolicy(ctx, client)
		if policy != "" {
			return errs.InvalidOption("the server's maxmemory-policy", policy, "noeviction (Options.Strict)")
		}
		if err != nil {
			return unknownSettingError("Strict", err)
		}
	}
	if durable {
		setting, err := script.Forgetful(ctx, client)
		if setting != nil {
			return errs.InvalidOption("the server's "+setting.Name, setting.Value, setting.Must+" (Options.Durable)")
		}
		if err != nil {
			return unknownSettingError("Durable", err)
		}
	}
	text, err := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
	if script.Unsupported(err) {
		h.opts.lacks.Add(errs.LackInfo, err)
	}
	if err != nil {
		return nil
	}
	for line := range strings.Lines(text) {
		switch strings.TrimSpace(line) {
		case "redis_mode:sentinel", "server_mode:sentinel": // the second is Valkey's word
			return errIsSentinel
		}
		version, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:")
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); ok && err == nil && n < 7 {
			return errs.InvalidOption("InitAddress", "a server of Redis "+version, "one of Redis 7.0 or later, or Valkey")
		}
	}
	return nil
}

// unknownSettingError is the error of an option that needs the server's settings, if INFO failed with err.
func unknownSettingError(option string, err error) error {
	if _, refused := rueidis.IsRedisErr(err); refused {
		return errs.InvalidOption("the server's INFO", err, "allowed, to see the server's settings (Options."+option+")")
	}
	return fmt.Errorf("%w: INFO, for Options.%s: %w", errs.ErrUnavailable, option, err)
}

// checkOption refuses options that cannot be used, whether or not rueidis would refuse them later.
func checkOption(option rueidis.ClientOption) error {
	switch {
	case option.ConnLifetime != 0:
		return errs.InvalidOption("ConnLifetime", option.ConnLifetime, "0 (rueidis may run a script twice when it ends)")
	case option.ReplicaOnly:
		return errs.InvalidOption("ReplicaOnly", true, "false (locks and counters write)")
	case len(option.InitAddress) == 0:
		return errs.InvalidOption("InitAddress", "empty", "one host:port or more")
	}
	if option.DialFn != nil || option.DialCtxFn != nil {
		return nil // the program's own dialer may understand other addresses
	}
	for _, addr := range option.InitAddress {
		if strings.Contains(addr, "://") { // not shown: the URL may contain a password
			return errs.InvalidOption("InitAddress", "a URL", "host:port (rueidis.ParseURL makes options of a URL)")
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return errs.InvalidOption("InitAddress", fmt.Sprintf("%q", addr), "host:port")
		}
	}
	return nil
}

// optionErrors are rueidis' errors for invalid options.
var optionErrors = []error{
	rueidis.ErrNoAddr, rueidis.ErrWrongPipelineMultiplex, rueidis.ErrReplicaOnlyNotSupported, rueidis.ErrNoSendToReplicas,
	rueidis.ErrSendToReplicasNotSet, rueidis.ErrInvalidShardsRefreshInterval, rueidis.ErrInvalidTopologyRefreshInterval,
	rueidis.ErrReplicaOnlyConflict, rueidis.ErrReplicaOnlyConflictWithReplicaSelector,
	rueidis.ErrReplicaOnlyConflictWithReadNodeSelector, rueidis.ErrReplicaSelectorConflictWithReadNodeSelector,
}

// connectError turns an error of rueidis.NewClient into an error of Dial. Where trying again does not help, the text
// says what to change.
func connectError(option rueidis.ClientOption, err error) error {
	if refusal := script.Refused(err); refusal != nil {
		return refusal
	}
	for _, optionErr := range optionErrors {
		if errors.Is(err, optionErr) {
			return fmt.Errorf("%w: %w", errs.ErrInvalidOption, err)
		}
	}
	var cert *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	if errors.As(err, &cert) || errors.As(err, &header) {
		return fmt.Errorf("no TLS with this server: see TLSConfig: %w", err)
	}
	var redisErr *rueidis.RedisError
	if !errors.As(err, &redisErr) {
		if mismatch := tlsMismatch(option, err); mismatch != "" {
			return fmt.Errorf("%w: %s: %w", errs.ErrInvalidOption, mismatch, err)
		}
		if closesOnHello(option) {
			return fmt.Errorf("%w: %w", errNoHello, err)
		}
		return fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
	}
	switch text := redisErr.Error(); {
	case strings.Contains(strings.ToUpper(text), "HELLO") && script.Unsupported(redisErr):
		return fmt.Errorf("%w: %w", errNoHello, err)
	case option.Sentinel.MasterSet == "" && strings.Contains(text, "unknown command 'CLUSTER'"):
		// rueidis sends CLUSTER if option has several addresses, and only a sentinel does not know the command
		return fmt.Errorf("%w: %w", errIsSentinel, err)
	case script.NotAnswered(script.Explain("connect", redisErr)), strings.Contains(text, "max number of clients"):
		return fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
	}
	return fmt.Errorf("the server refuses these options: %w", err)
}

// probeTimeout bounds each step of the check whether a server speaks TLS.
const probeTimeout = time.Second

// tlsMismatch describes the mismatch if only one side speaks TLS, and returns "" otherwise. The error of rueidis does
// not show it: a server without TLS takes the handshake for a command and waits for the rest of it until the client's
// deadline, and a server with TLS ends the connection. So tlsMismatch connects the other way. It sends no password, and
// it is called only after the way of the options has failed.
func tlsMismatch(option rueidis.ClientOption, err error) (mismatch string) {
	var op *net.OpError
	if option.DialFn != nil || option.DialCtxFn != nil || errors.As(err, &op) && op.Op == "dial" && !op.Timeout() {
		return "" // no server was reached
	}
	if errors.Is(err, rueidis.ErrNoCache) {
		return "" // the server has answered
	}
	config, field := option.TLSConfig, "TLSConfig"
	if option.Sentinel.MasterSet != "" {
		config, field = option.Sentinel.TLSConfig, "Sentinel.TLSConfig"
	}
	for _, addr := range option.InitAddress {
		conn, err := net.DialTimeout("tcp", addr, probeTimeout)
		if err != nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(probeTimeout)) // a TCP connection that is open takes one
		if config != nil {
			reply := make([]byte, 1)
			_, _ = conn.Write([]byte("PING\r\n")) // if it fails, nothing can be read
			if n, _ := conn.Read(reply); n == 1 && (reply[0] == '+' || reply[0] == '-') {
				mismatch = fmt.Sprintf("%s is set, and the server at %s speaks without TLS", field, addr)
			}
		} else {
			// nothing is sent over the connection, so the certificate does not matter
			err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
			var alert tls.AlertError
			if err == nil || errors.As(err, &alert) {
				mismatch = fmt.Sprintf("%s is nil, and the server at %s speaks TLS", field, addr)
			}
		}
		_ = conn.Close() // a failed Close changes nothing: the check is complete
		return mismatch
	}
	return ""
}

// closesOnHello reports whether the server answers PING, and ends the connection at HELLO. A proxy that does not know
// HELLO does so, and trying again is in vain. closesOnHello is called only after rueidis failed to connect.
func closesOnHello(option rueidis.ClientOption) bool {
	if option.DialFn != nil || option.DialCtxFn != nil || option.Sentinel.MasterSet != "" {
		return false
	}
	conn, err := net.DialTimeout("tcp", option.InitAddress[0], probeTimeout)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(probeTimeout)) // a TCP connection that is open takes one
	if option.TLSConfig != nil {
		conn = tls.Client(conn, option.TLSConfig)
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
	var netErr net.Error
	return n == 0 && !(errors.As(err, &netErr) && netErr.Timeout())
}
