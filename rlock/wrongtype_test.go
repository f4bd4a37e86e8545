package rlock_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

// A hold under a hold, or beside another's, is refused as well before anything has changed.
func TestReadLock_KeyOfAnotherTypeBesideIt_ChangesNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		r := newRig(t, s, rlock.Options{})
		for _, prefix := range []string{"redlatch_rw", "redlatch_rwq"} {
			for _, first := range []string{"Read", "Write"} {
				for _, under := range []bool{false, true} {
					name := fmt.Sprint(prefix, first, under)
					key := prefix + ":{" + name + "}"
					hold := lock(t, kindOf[first](r.locks, name), within(t))
					before := r.hash(t, name)
					wire.Must(t, r.redis, "SET", key, "a")
					ctx := within(t)
					if under {
						ctx = hold.Context(ctx)
					}
					_, err := r.locks.ReadWrite(name).Read().TryLock(ctx, 0, time.Minute)
					switch {
					case first == "Read" && under: // the lease of its own hold is raised, by a script that uses no queue
						if prefix == "redlatch_rw" {
							require.ErrorIs(t, err, errs.ErrWrongType, name)
						}
					case first == "Read" || under:
						require.ErrorIs(t, err, errs.ErrWrongType, name)
					default: // refused because of the writer, whatever is beside it
						require.Error(t, err, name)
					}
					require.Equal(t, before, r.hash(t, name), name)
					runtime.KeepAlive(hold)
				}
			}
		}
	})
}
