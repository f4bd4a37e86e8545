package redistest_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// A wire that is a black hole one way passes on what goes the other way, and is whole again when it has healed.
func TestAWireLosesWhatGoesOneWay(t *testing.T) {
	for name, c := range map[string]struct {
		hole      redistest.Direction
		lost, got int // which end hears nothing, and which one hears
	}{"up": {redistest.Up, 1, 0}, "down": {redistest.Down, 0, 1}} {
		t.Run(name, func(t *testing.T) {
			l, err := redistest.Listen()
			require.NoError(t, err)
			defer l.Close()
			w := redistest.NewWire(t, l.Addr().String())
			pair := func() (ends [2]net.Conn) {
				near, err := net.Dial("tcp", w.Addr())
				require.NoError(t, err)
				far, err := l.Accept()
				require.NoError(t, err)
				t.Cleanup(func() { near.Close(); far.Close() })
				return [2]net.Conn{near, far}
			}
			hears := func(ends [2]net.Conn, to int, patience time.Duration) error {
				_, err := ends[1-to].Write([]byte("x"))
				require.NoError(t, err)
				ends[to].SetReadDeadline(time.Now().Add(patience))
				_, err = io.ReadFull(ends[to], make([]byte, 1))
				return err
			}
			ends := pair()
			require.NoError(t, hears(ends, 0, time.Minute))
			require.NoError(t, hears(ends, 1, time.Minute))
			w.BlackHole(c.hole)
			require.NoError(t, hears(ends, c.got, time.Minute))
			require.True(t, errors.Is(hears(ends, c.lost, 20*time.Millisecond), os.ErrDeadlineExceeded))
			w.Heal()
			ends = pair()
			require.NoError(t, hears(ends, 0, time.Minute))
			require.NoError(t, hears(ends, 1, time.Minute))
		})
	}
}

// What a wire keeps back comes later, whole and in order.
func TestAWireKeepsBackAndDelivers(t *testing.T) {
	l, err := redistest.Listen()
	require.NoError(t, err)
	defer l.Close()
	w := redistest.NewWire(t, l.Addr().String())
	near, err := net.Dial("tcp", w.Addr())
	require.NoError(t, err)
	defer near.Close()
	far, err := l.Accept()
	require.NoError(t, err)
	defer far.Close()
	w.Hold(redistest.Up)
	_, err = near.Write([]byte("one "))
	require.NoError(t, err)
	redistest.Eventually(t, time.Minute, "something is kept back", func() bool { return w.Kept() == 1 })
	_, err = near.Write([]byte("two"))
	require.NoError(t, err)
	far.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	_, err = far.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	w.Heal()
	require.Zero(t, w.Kept())
	far.SetReadDeadline(time.Now().Add(time.Minute))
	text := make([]byte, len("one two"))
	_, err = io.ReadFull(far, text)
	require.NoError(t, err)
	require.Equal(t, "one two", string(text))
}
