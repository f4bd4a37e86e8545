package rlock

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

// Each script has one function here that writes its arguments and reads its reply.
var (
	//go:embed acquire.lua
	acquireSource string
	//go:embed release.lua
	releaseSource string
	//go:embed renew.lua
	renewSource string
	//go:embed query.lua
	querySource string
	//go:embed join.lua
	joinSource string
	//go:embed inspect.lua
	inspectSource string
	//go:embed force.lua
	forceSource string

	acquireScript = script.New("acquire", acquireSource)
	releaseScript = script.New("release", releaseSource)
	renewScript   = script.New("renew", renewSource)
	queryScript   = script.New("query", querySource)
	joinScript    = script.New("join", joinSource)
	inspectScript = script.New("inspect", inspectSource)
	forceScript   = script.New("force unlock", forceSource)
)

type acquireStatus int64

const (
	acquireHeld acquireStatus = iota
	acquireGranted
	acquireLate
	acquireLost
)

type acquireReply struct {
	status acquireStatus
	left   time.Duration // negative: without end
	server int64         // its clock, ms
}

func acquireCall(key, owner string, want int, lease time.Duration, notAfter int64, late func(rueidis.RedisResult)) script.Call {
	return script.Call{
		Script: acquireScript, Keys: []string{key}, Late: late,
		Args: []string{owner, strconv.Itoa(want), millis(lease), strconv.FormatInt(notAfter, 10)},
	}
}

// joinCall's reply is that of acquireCall.
func joinCall(key, parent, joiner string, lease time.Duration, notAfter int64, late func(rueidis.RedisResult)) script.Call {
	return script.Call{
		Script: joinScript, Keys: []string{key}, Late: late,
		Args: []string{parent, joiner, millis(lease), strconv.FormatInt(notAfter, 10)},
	}
}

func decodeAcquire(m rueidis.RedisMessage) (acquireReply, error) {
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 3 {
		return acquireReply{}, fmt.Errorf("acquire: unexpected reply %v: %w", v, err)
	}
	return acquireReply{acquireStatus(v[0]), time.Duration(v[1]) * time.Millisecond, v[2]}, nil
}

type releaseStatus int64

const (
	releaseGone releaseStatus = iota
	releaseKept
	releaseDone
)

func (c *Client) runRelease(ctx context.Context, key, owner string, remaining int, channel string) (releaseStatus, error) {
	m, err := c.runner.Attempt(ctx, script.Call{
		Script: releaseScript, Keys: []string{key},
		Args: []string{owner, strconv.Itoa(remaining), channel, c.hub.PublishCommand()},
	})
	if err != nil {
		return 0, err
	}
	v, err := m.AsInt64()
	return releaseStatus(v), err
}

// runRenew asks for one hold what the watchdog asks for many.
func (c *Client) runRenew(ctx context.Context, key, owner string, lease time.Duration) (held bool, err error) {
	m, err := c.runner.Do(ctx, script.Call{Script: renewScript, Keys: []string{key}, Args: []string{owner, millis(lease)}})
	if err != nil {
		return false, err
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 1 || v[0] < 0 {
		return false, fmt.Errorf("renew on %q: unexpected reply %v: %w", key, v, err)
	}
	return v[0] == 1, nil
}

type queryReply struct {
	owners, count int64
	left          time.Duration // -1: without end
}

func (c *Client) runQuery(ctx context.Context, key, owner string) (queryReply, error) {
	m, err := c.runner.Do(ctx, script.Call{Script: queryScript, Keys: []string{key}, Args: []string{owner}})
	if err != nil {
		return queryReply{}, err
	}
	v, err := m.AsIntSlice()
	if err != nil || len(v) != 3 {
		return queryReply{}, fmt.Errorf("query on %q: unexpected reply %v: %w", key, v, err)
	}
	q := queryReply{owners: v[0], count: v[1], left: time.Duration(v[2]) * time.Millisecond}
	switch v[2] {
	case -2:
		q.left = 0
	case -1:
		q.left = NoExpiry
	}
	return q, nil
}

type inspectReply struct {
	left   time.Duration
	locked bool
	server int64
	fields map[string]string
}

func (c *Client) runInspect(ctx context.Context, key string) (inspectReply, error) {
	m, err := c.runner.Do(ctx, script.Call{Script: inspectScript, Keys: []string{key}})
	if err != nil {
		return inspectReply{}, err
	}
	v, err := m.ToArray()
	if err != nil || len(v) < 2 || len(v)%2 != 0 {
		return inspectReply{}, fmt.Errorf("inspect %q: unexpected reply of %d values: %w", key, len(v), err)
	}
	left, _ := v[0].AsInt64()
	r := inspectReply{left: time.Duration(left) * time.Millisecond, locked: left != -2, fields: make(map[string]string, len(v)/2-1)}
	if left == -1 {
		r.left = NoExpiry
	}
	r.server, _ = v[1].AsInt64()
	for i := 2; i < len(v); i += 2 {
		field, _ := v[i].ToString()
		r.fields[field], _ = v[i+1].ToString()
	}
	return r, nil
}

func (c *Client) runForce(ctx context.Context, key, channel string, owners []string) (removed int64, err error) {
	m, err := c.runner.Do(ctx, script.Call{
		Script: forceScript, Keys: []string{key}, Args: append([]string{channel, c.hub.PublishCommand()}, owners...),
	})
	if err != nil {
		return 0, err
	}
	return m.AsInt64()
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
