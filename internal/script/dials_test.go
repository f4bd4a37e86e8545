package script_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// rueidis has all callers wait for the one that connects, for five seconds at a server that takes connections and is
// silent.
func TestInPlace_AnotherCallDials_DoesNotWait(t *testing.T) {
	t.Parallel()
	const callTimeout = 300 * time.Millisecond
	for range redistest.Sized(1, 3, 10) {
		server := redistest.Start(t)
		proxy := redistest.NewProxy(t, server)
		o := proxy.Server().Option()
		o.PipelineMultiplex = -1 // one connection
		dials := new(errs.Dials)
		o.DialCtxFn = func(ctx context.Context, to string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return dials.Dial(func() (net.Conn, error) { return d.DialContext(ctx, "tcp", to) })
		}
		c := redistest.NoError(rueidis.NewClient(o))(t)
		t.Cleanup(c.Close)
		r := script.NewRunner(c, callTimeout)
		r.HeedDials(dials)

		var err error
		redistest.Eventually(t, 20*time.Second, "the server replies in time", func() bool {
			_, err = r.Attempt(within(t), call("k"))
			return err == nil
		}) // from now on calls are made in place, for 25 ms
		before := dials.Begun()
		proxy.BlackHole(redistest.Down)
		proxy.Cut()
		connecting := make(chan struct{})
		go func() {
			defer close(connecting)
			for dials.Begun() == before { // the first may have gone over the connection that was cut
				c.Do(context.Background(), c.B().Ping().Build())
			}
		}()
		for dials.Begun() == before {
			time.Sleep(50 * time.Microsecond)
		}
		var took time.Duration
		slow := redistest.Stall(func() {
			began := time.Now()
			_, err = r.Attempt(context.Background(), call("k"))
			took = time.Since(began)
		})
		require.ErrorIs(t, err, errs.ErrUnknownOutcome)
		require.Less(t, took, 2*callTimeout+5*slow)
		proxy.Heal()
		proxy.Cut()
		<-connecting
	}
}
