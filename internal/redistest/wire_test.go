package redistest_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// A wire loses what some send and are sent, is whole again when it has healed, and leads to another address.
func TestWire_LostHealedAndLedElsewhere_CarriesTheRest(t *testing.T) {
	t.Parallel()
	var ends [2]net.Listener
	for i := range ends {
		l, err := redistest.Listen()
		require.NoError(t, err)
		defer l.Close()
		ends[i] = l
	}
	w := redistest.NewWire(t, ends[0].Addr().String())
	connect := func(to net.Listener) (pair [2]net.Conn) {
		near, err := net.Dial("tcp", w.Addr())
		require.NoError(t, err)
		far, err := to.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { near.Close(); far.Close() })
		return [2]net.Conn{near, far}
	}
	hears := func(pair [2]net.Conn, to int, patience time.Duration) error {
		_, err := pair[1-to].Write([]byte("x"))
		require.NoError(t, err)
		pair[to].SetReadDeadline(time.Now().Add(patience))
		_, err = io.ReadFull(pair[to], make([]byte, 1))
		return err
	}
	whole := func(pair [2]net.Conn) {
		for to := range pair {
			require.NoError(t, hears(pair, to, time.Minute))
		}
	}
	first := connect(ends[0])
	whole(first)
	w.Lose(func(from string) bool { return from == "another" })
	whole(first)
	w.Lose(func(from string) bool { return net.ParseIP(from) != nil })
	for to := range first {
		require.ErrorIs(t, hears(first, to, 20*time.Millisecond), os.ErrDeadlineExceeded)
	}
	w.Heal()
	second := connect(ends[0])
	whole(second)
	w.Lead(ends[1].Addr().String())
	second[0].SetReadDeadline(time.Now().Add(time.Minute))
	_, err := second[0].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "connections to the old address are closed")
	whole(connect(ends[1]))
}
