package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/interop"
	"github.com/redlatch/redlatch/internal/redistest"
)

// theJVM is one for all benchmarks of this process, so that it is warm after the first. It ends with its input, when
// this process does.
var theJVM = sync.OnceValues(func() (*interop.JVM, error) {
	dir, err := interop.Build(context.Background())
	if err != nil {
		return nil, err
	}
	return interop.Start(dir, interop.Newest)
})

var redissonOpened atomic.Int64

// redissonOn makes a client of Redisson on s.
func redissonOn(b *testing.B, s *redistest.Server) (j *interop.JVM, client string) {
	j, err := theJVM()
	needJava(b, err)
	client = "limits-" + strconv.FormatInt(redissonOpened.Add(1), 10)
	_, err = j.Do(context.Background(), "opening", client, "open", 30000, s.Addr())
	require.NoError(b, err)
	b.Cleanup(func() { j.Do(context.Background(), "opening", client, "close") })
	return j, client
}

func redissonLimit(b *testing.B, s *redistest.Server, rate int64) limit {
	j, client := redissonOn(b, s)
	return func(ctx context.Context, key string) (bool, error) {
		if _, err := j.Do(ctx, "limit", client, "rate.set", "limit"+key, rate); err != nil {
			return false, err
		}
		said, err := j.Do(ctx, "limit", client, "rate.try", "limit"+key)
		return said == "true", err
	}
}

// redissonCrowd makes n requests in the JVM, whose pipe would take longer than they do.
func redissonCrowd(b *testing.B, s *redistest.Server, rate, keys int64, goroutines, n int) {
	j, client := redissonOn(b, s)
	for i := range keys {
		_, err := j.Do(context.Background(), "limit", client, "rate.set", fmt.Sprint("limit", i), rate)
		require.NoError(b, err)
	}
	run := func(n int) {
		_, err := j.Do(context.Background(), "limit", client, "rate.run", "limit", keys, goroutines, n)
		require.NoError(b, err)
	}
	for end := time.Now().Add(2 * time.Second); n > 1 && time.Now().Before(end); { // of what is compiled while it runs
		run(500)
	}
	b.ResetTimer()
	run(n)
}
