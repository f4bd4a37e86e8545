package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	clientv3 "go.etcd.io/etcd/client/v3"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/chaos/cells"
)

// What a resource checks of a write.
const (
	nothing = "nothing"
	guard   = "contrib/fence" // the token of the lock, by the guard for Redis keys; advanced before each reading
	owner   = "etcd"          // that the lock's key is there still, by the transaction that writes a key of etcd
)

// errRefused: the resource's check refused a write.
var errRefused = errors.New("refused by the resource")

// accounts are numbers, 0 at first, behind one connection.
type accounts interface {
	read(ctx context.Context, name string, h cells.Held) (int64, error)
	write(ctx context.Context, name string, h cells.Held, n int64) error
	// look reads without a check.
	look(ctx context.Context, name string) (int64, error)
	close()
}

func openAccounts(check, addr string) (accounts, error) {
	if check == owner {
		c, err := dialEtcd(addr)
		return inEtcd{c}, err
	}
	// No ping of an idle connection: what the wire keeps back of it is the write.
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true,
		DisableCache: true, ConnWriteTimeout: 10 * time.Minute, Dialer: net.Dialer{KeepAlive: time.Hour},
		RingScaleEachConn: 2, ReadBufferEachConn: 4 << 10, WriteBufferEachConn: 4 << 10})
	if err != nil {
		return nil, err
	}
	return inRedis{c, check == guard}, nil
}

type inRedis struct {
	client rueidis.Client
	fenced bool
}

func (a inRedis) close() { a.client.Close() }

func token(h cells.Held) (redlatchfence.Token, error) {
	t, ok := h.(interface{ Token() (token int64, ok bool) })
	if !ok {
		return 0, fmt.Errorf("%T has no token", h)
	}
	return redlatchfence.Of(t)
}

func (a inRedis) read(ctx context.Context, name string, h cells.Held) (int64, error) {
	if a.fenced {
		t, err := token(h)
		if err == nil {
			err = redlatchfence.Redis{Client: a.client}.Advance(ctx, name, t)
		}
		if err != nil {
			return 0, err
		}
	}
	return a.look(ctx, name)
}

func (a inRedis) look(ctx context.Context, name string) (int64, error) {
	n, err := a.client.Do(ctx, a.client.B().Get().Key(name).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	return n, err
}

func (a inRedis) write(ctx context.Context, name string, h cells.Held, n int64) error {
	value := strconv.FormatInt(n, 10)
	if !a.fenced {
		return a.client.Do(ctx, a.client.B().Set().Key(name).Value(value).Build()).Error()
	}
	t, err := token(h)
	if err == nil {
		err = redlatchfence.Redis{Client: a.client}.Set(ctx, name, t, value)
	}
	if errors.Is(err, redlatchfence.ErrStale) {
		return errRefused
	}
	return err
}

// inEtcd are keys of the etcd that has the locks.
type inEtcd struct{ client *clientv3.Client }

func (a inEtcd) close() { a.client.Close() }

// read needs no check: when a later holder reads, the key that the earlier one's writes ask for has gone.
func (a inEtcd) read(ctx context.Context, name string, _ cells.Held) (int64, error) {
	return a.look(ctx, name)
}

func (a inEtcd) look(ctx context.Context, name string) (int64, error) {
	got, err := a.client.Get(ctx, "account/"+name)
	if err != nil || len(got.Kvs) == 0 {
		return 0, err
	}
	return strconv.ParseInt(string(got.Kvs[0].Value), 10, 64)
}

func (a inEtcd) write(ctx context.Context, name string, h cells.Held, n int64) error {
	put := clientv3.OpPut("account/"+name, strconv.FormatInt(n, 10))
	done, err := a.client.Txn(ctx).If(h.(*etcdHold).mutex.IsOwner()).Then(put).Commit()
	if err == nil && !done.Succeeded {
		return errRefused
	}
	return err
}
