package wait_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFlight_Result_IsForEarlierCallersOnly(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		at := func(n int) time.Time { return time.Unix(1000+int64(n), 0) }
		s, first := r.JoinFlight("k")
		require.True(t, first)
		other, first := r.JoinFlight("k")
		require.False(t, first)
		require.Same(t, s, other)
		_, ok := s.Load(at(0))
		require.False(t, ok, "nothing is known yet")
		_, sent := s.LastNote(at(0))
		require.Zero(t, sent)

		s.Note(at(3), "not yet")
		note, sent := other.LastNote(at(2))
		require.Equal(t, "not yet", note)
		require.Equal(t, at(3), sent)
		_, sent = other.LastNote(at(4))
		require.Zero(t, sent, "it says nothing to one that came later")

		s.Publish(at(5), nil)
		another, first := r.JoinFlight("another")
		require.True(t, first)
		_, ok = another.Load(at(2))
		require.False(t, ok, "shared by key")
		another.Leave()
		for since, known := range map[int]bool{2: true, 5: true, 6: false} {
			result, ok := other.Load(at(since))
			require.Equal(t, known, ok, "%d", since)
			require.Nil(t, result)
		}
		s.Leave()
		_, ok = other.Load(at(2))
		require.True(t, ok, "as long as anybody shares it")
		other.Leave()
		s, first = r.JoinFlight("k")
		require.True(t, first)
		_, ok = s.Load(at(2))
		require.False(t, ok, "another event")
		s.Leave()
	})
}
