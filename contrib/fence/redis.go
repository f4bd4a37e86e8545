package redlatchfence

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/keyname"
)

//go:embed lua/write.lua
var write string

var writing = rueidis.NewLuaScript(write)

// Redis guards keys of a Redis server or Cluster. The token of a key is at redlatch_fence:{key}, without an expiry, in
// the same slot; deleting or evicting it forgets the token, and so does a failover that had not replicated it. Its user
// needs the rights for both keys. A key is named like a resource. Each call is one script, which may run twice. While a
// Cluster moves the slot to another node a call may fail with TRYAGAIN, and has written nothing.
type Redis struct {
	// Client reaches the server that has the keys, which need not be that of the locks. Required.
	Client rueidis.Client
}

// Advance writes the token of the key and not the key: see Guard.
func (r Redis) Advance(ctx context.Context, key string, token Token) error {
	return r.run(ctx, key, token, "ADVANCE")
}

// Set sets a key, as SET does: what was there, and its expiry, are gone.
func (r Redis) Set(ctx context.Context, key string, token Token, value string) error {
	return r.run(ctx, key, token, "SET", value)
}

// HSet sets fields of a hash, 1 to 1000 of them.
func (r Redis) HSet(ctx context.Context, key string, token Token, fields map[string]string) error {
	if len(fields) == 0 || len(fields) > 1000 {
		return invalid("the number of fields", len(fields), "1 to 1000")
	}
	args := make([]string, 0, 2*len(fields))
	for field, value := range fields {
		args = append(args, field, value)
	}
	return r.run(ctx, key, token, "HSET", args...)
}

// Del deletes a key. The token stays.
func (r Redis) Del(ctx context.Context, key string, token Token) error {
	return r.run(ctx, key, token, "DEL")
}

func (r Redis) run(ctx context.Context, key string, token Token, verb string, args ...string) error {
	if r.Client == nil {
		return invalid("Client", "nil", "a client")
	}
	if err := admissible(key, token); err != nil {
		return err
	}
	if err := keyname.Shape(key); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	keys := []string{keyname.Prefix("redlatch_fence", key)}
	if verb != "ADVANCE" {
		keys = append(keys, key)
	}
	argv := append([]string{strconv.FormatInt(int64(token), 10), verb}, args...)
	n, err := writing.Exec(ctx, r.Client, keys, argv).AsInt64()
	if err != nil {
		return fmt.Errorf("redlatchfence: %.64q: %w", key, err)
	}
	if n == 0 {
		return stale(key, token)
	}
	return nil
}
