package bench_test

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
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

// A lock that no other caller wants: lock and unlock, from 1 goroutine, and from 64 with a lock each.
func BenchmarkUncontended(b *testing.B) { runs(b, uncontended) }

var uncontended = with([]int{1, 64}, rawLock, map[string]maker{
	"Reentrant": reentrant,
	"Plain":     locks(func(c *rlock.Client, name string) *rlock.Lock { return c.Plain(name) }),
	"Read":      locks(func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Read() }),
	"Write":     locks(func(c *rlock.Client, name string) *rlock.Lock { return c.ReadWrite(name).Write() }),
}, "Reentrant", "Plain", "Read", "Write")

// A permit that no other caller wants. Of-one is one semaphore for all goroutines, with enough permits.
func BenchmarkPermits(b *testing.B) { runs(b, permitCycles) }

var permitCycles = with([]int{1, 64}, rawLock, map[string]maker{
	"Permit": func(b *testing.B, s *redistest.Server) op {
		c := openSemaphores(b, s.Option())
		return cycle(func(ctx context.Context, name string) (load.Release, error) {
			return permit(ctx, c.Semaphore(name, permits))
		})
	},
	"Permit-of-one": func(b *testing.B, s *redistest.Server) op {
		one := openSemaphores(b, s.Option()).Semaphore("one", 1000)
		return cycle(func(ctx context.Context, _ string) (load.Release, error) { return permit(ctx, one) })
	},
	"Counting": counted,
}, "Permit", "Permit-of-one", "Counting")

const permits = 8

func held(ctx context.Context, l *rlock.Lock) (load.Release, error) {
	h, err := l.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return h.Unlock, nil
}

func permit(ctx context.Context, s *rsemaphore.Semaphore) (load.Release, error) {
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		return nil, err
	}
	return p.Release, nil
}

func locks(of func(c *rlock.Client, name string) *rlock.Lock) maker {
	return func(b *testing.B, s *redistest.Server) op {
		return lockCycle(openLocks(b, s.Option(), rlock.Options{}), of)
	}
}

func lockCycle(c *rlock.Client, of func(c *rlock.Client, name string) *rlock.Lock) op {
	return cycle(func(ctx context.Context, name string) (load.Release, error) { return held(ctx, of(c, name)) })
}

func ofReentrant(c *rlock.Client, name string) *rlock.Lock { return c.Reentrant(name) }

func reentrant(b *testing.B, s *redistest.Server) op { return locks(ofReentrant)(b, s) }

func counted(b *testing.B, s *redistest.Server) op {
	c := openSemaphores(b, s.Option())
	var set sync.Map
	return cycle(func(ctx context.Context, name string) (load.Release, error) {
		sem := counting.New(c, name)
		if _, done := set.LoadOrStore(name, true); !done {
			if _, err := sem.TrySetPermits(ctx, permits, 0); err != nil {
				return nil, err
			}
		}
		if err := sem.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return sem.Release(ctx, 1) }, nil
	})
}

// A lock in a program whose heap is large and often collected. The floor is raw SET NX in the same program. p99-us and
// floor-p99-us tell how long the collector delays both.
func BenchmarkCollected(b *testing.B) { runs(b, collected) }

var collected = []workload{
	{"1", func(b *testing.B) { collect(b, 1) }},
	{"64", func(b *testing.B) { collect(b, 64) }},
}

func collect(b *testing.B, goroutines int) {
	server, other := start(b), start(b)
	live := make([]*[64]byte, sized(1<<24)) // 1 GiB
	for i := range live {
		live[i] = new([64]byte)
	}
	percent := debug.SetGCPercent(20)
	defer debug.SetGCPercent(percent)
	beside(b, goroutines, server, reentrant, other, rawLock, "x-floor")
	runtime.KeepAlive(live)
}

// What TLS adds to a lock, and a server that is 1 ms away in each direction. The floor is the same lock on loopback.
func BenchmarkPlaces(b *testing.B) { runs(b, places) }

var places = []workload{
	{"TLS/1", func(b *testing.B) { place(b, 1, throughTLS) }},
	{"TLS/64", func(b *testing.B) { place(b, 64, throughTLS) }},
	{"1ms-away/1", func(b *testing.B) { place(b, 1, away) }},
	{"1ms-away/64", func(b *testing.B) { place(b, 64, away) }},
}

func place(b *testing.B, goroutines int, at func(b *testing.B) (*redistest.Server, rueidis.ClientOption)) {
	if !haveRedis() {
		b.Skip("the embedded server has no TLS")
	}
	server, client := at(b)
	beside(b, goroutines, server, func(b *testing.B, _ *redistest.Server) op {
		return lockCycle(openLocks(b, client, rlock.Options{}), ofReentrant)
	}, start(b), reentrant, "x-floor")
}

func away(b *testing.B) (*redistest.Server, rueidis.ClientOption) {
	server := start(b)
	proxy := redistest.NewProxy(b, server)
	proxy.Delay(time.Millisecond, time.Millisecond)
	return server, proxy.Server().Option()
}

// throughTLS is a server with a certificate of its own. Its plain port is asked what the server did.
func throughTLS(b *testing.B) (*redistest.Server, rueidis.ClientOption) {
	addr, err := redistest.FreeAddr()
	require.NoError(b, err)
	host, port, err := net.SplitHostPort(addr)
	require.NoError(b, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(b, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(host)}, IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(b, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(b, err)
	cert, private := filepath.Join(b.TempDir(), "cert"), filepath.Join(b.TempDir(), "key")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(b, os.WriteFile(cert, text, 0o600))
	require.NoError(b, os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600))
	server := redistest.Start(b, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", private,
		"--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	client := server.Option()
	client.InitAddress, client.TLSConfig = []string{addr}, &tls.Config{RootCAs: x509.NewCertPool()}
	client.TLSConfig.RootCAs.AppendCertsFromPEM(text)
	return server, client
}
