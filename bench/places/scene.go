package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/stage"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// place is where a server can be.
type place struct {
	name, what string
	set        func(s *stage.Stage) (client rueidis.ClientOption, servers []string, o rlock.Options, err error)
}

var places = []place{
	{"loopback", "a redis-server on the same machine, no password", loopback},
	{"TLS", "the same through TLS 1.3, the certificate checked", throughTLS},
	{"AUTH and ACL", "as a user with a password, whose rights are by category, on all keys", asUser},
	{"Cluster", "three primaries without replicas", inCluster},
	{"Sentinel", "a primary with a replica, found by three sentinels", behindSentinel},
	{"MinReplicas 1", "each grant confirmed by one replica: WAIT on a connection of its own", confirmed},
	{"1 ms away", "a proxy adds 1 ms to each way, so 2 ms to each round trip", away},
}

func loopback(s *stage.Stage) (c rueidis.ClientOption, servers []string, o rlock.Options, err error) {
	server := redistest.Start(s)
	return server.Option(), server.Addrs, o, nil
}

func throughTLS(s *stage.Stage) (c rueidis.ClientOption, servers []string, o rlock.Options, err error) {
	dir, err := os.MkdirTemp("", "bench-places-")
	if err != nil {
		return c, nil, o, err
	}
	s.Cleanup(func() { os.RemoveAll(dir) })
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, nil, o, err
	}
	addr, err := redistest.FreeAddr()
	if err != nil {
		return c, nil, o, err
	}
	host, port, _ := net.SplitHostPort(addr)
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(24 * time.Hour), IPAddresses: []net.IP{net.ParseIP(host)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return c, nil, o, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return c, nil, o, err
	}
	cert, private := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(cert, text, 0o600); err != nil {
		return c, nil, o, err
	}
	if err := os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
		0o600); err != nil {
		return c, nil, o, err
	}
	// It has the plain port as well, which is asked what the server did.
	server := redistest.Start(s, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", private,
		"--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return rueidis.ClientOption{InitAddress: []string{addr}, TLSConfig: &tls.Config{RootCAs: pool}}, server.Addrs, o, nil
}

// rights are those of a user of locks.
var rights = []string{"on", ">secret", "~*", "&*", "+@read", "+@write", "+@scripting", "+@pubsub", "+@connection",
	"+info", "+time", "+client|tracking", "+cluster|slots", "+cluster|shards", "-@dangerous", "+info"}

func asUser(s *stage.Stage) (c rueidis.ClientOption, servers []string, o rlock.Options, err error) {
	server := redistest.Start(s)
	server.Ask(s, slices.Concat([]string{"ACL", "SETUSER", "locker"}, rights)...)
	c = server.Option()
	c.Username, c.Password = "locker", "secret"
	return c, server.Addrs, o, nil
}

func inCluster(s *stage.Stage) (c rueidis.ClientOption, servers []string, o rlock.Options, err error) {
	server := redistest.Cluster(s)
	return server.Option(), server.Addrs, o, nil
}

func behindSentinel(s *stage.Stage) (c rueidis.ClientOption, servers []string, o rlock.Options, err error) {
	r := redistest.Sentinel(s)
	return r.Option(), r.Pairs[0].Primary.Addrs, o, nil
}

func confirmed(s *stage.Stage) (c rueidis.ClientOption, servers []string, o rlock.Options, err error) {
	primary := redistest.Start(s)
	host, port, _ := net.SplitHostPort(primary.Addr())
	redistest.Start(s, "--replicaof", host, port)
	redistest.Eventually(s, time.Minute, "the replica is in step", func() bool {
		return strings.Contains(primary.Ask(s, "INFO", "replication"), "state=online")
	})
	return primary.Option(), primary.Addrs, rlock.Options{MinReplicas: 1}, nil
}

func away(s *stage.Stage) (c rueidis.ClientOption, servers []string, o rlock.Options, err error) {
	server := redistest.Start(s)
	through, stop, err := load.Delay(server.Addr(), time.Millisecond)
	if err != nil {
		return c, nil, o, err
	}
	s.Cleanup(stop)
	return rueidis.ClientOption{InitAddress: []string{through}}, server.Addrs, o, nil
}

// settled is a place that is set up, with a client of it.
type settled struct {
	place
	locks *rlock.Client
	asked []rueidis.Client // one connection to each of its servers
}

// lock locks a name.
func (x *settled) lock(ctx context.Context, name string) (load.Release, error) {
	h, err := x.locks.Reentrant(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return h.Unlock, nil
}

// usage is what all its servers did.
func (x *settled) usage(ctx context.Context) (sum load.Usage, err error) {
	for _, c := range x.asked {
		u, err := load.ServerUsage(ctx, c)
		if err != nil {
			return sum, err
		}
		sum = sum.Plus(u)
	}
	return sum, nil
}

// settle sets p up, and warms it.
func settle(ctx context.Context, s *stage.Stage, p place) (x *settled, err error) {
	x = &settled{place: p}
	var client rueidis.ClientOption
	var servers []string
	var o rlock.Options
	if failed := s.Try(func() { client, servers, o, err = p.set(s) }); failed != nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	for _, addr := range servers {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true,
			DisableCache: true, PipelineMultiplex: -1})
		if err != nil {
			return nil, err
		}
		s.Cleanup(c.Close)
		x.asked = append(x.asked, c)
	}
	hub, err := pubsub.Dial(ctx, client, pubsub.Options{CallTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() { hub.Close(context.Background()) })
	o.CallTimeout = 10 * time.Second // a stall of the machine is not an error
	if x.locks, err = rlock.New(hub, o); err != nil {
		return nil, err
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		x.locks.Close(ctx)
	})
	_, err = x.turn(ctx, 0, 64, 100*time.Millisecond)
	return x, err
}
