package rlock_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	miniredis "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// rwFate is what happens to the server in a run with faults.
type rwFate int

const (
	fateEmptied  rwFate = iota // it loses its data
	fateBehind                 // a replica takes over that is up to 300 ms behind
	fateDurable                // a replica takes over that has all that it confirmed (MinReplicas), and not all of the rest
	fateMigrated               // the slot of the lock moves to another node: scripts are refused meanwhile, then subscriptions end
)

func (f rwFate) String() string {
	return [...]string{"emptied", "failover", "failover with MinReplicas", "migrated"}[f]
}

// rwHeir is the replica of a simulated server. It has copies of all keys as they were at some instants; what was written since the last
// one is lost with the primary.
type rwHeir struct {
	s    *rwSimulation
	link rueidis.Client

	mu     sync.Mutex
	rnd    *rand.Rand
	slow   bool     // it may be too late to confirm
	copies []rwCopy // the last second's, in order; in durable runs the newest alone counts
}

type rwCopy struct {
	at   time.Time
	keys []rueidis.RedisMessage
}

// A script has the server for itself, so that the copy is of one instant, and the change over seen whole.
const (
	copyAll = `
local all = {}
for _, k in ipairs(redis.call("KEYS", "*")) do
  local t = redis.call("TYPE", k).ok
  local v
  if t == "hash" then v = redis.call("HGETALL", k)
  elseif t == "zset" then v = redis.call("ZRANGE", k, 0, -1, "WITHSCORES")
  elseif t == "list" then v = redis.call("LRANGE", k, 0, -1)
  elseif t == "string" then v = {redis.call("GET", k)}
  else return redis.error_reply("a " .. t .. " at " .. k) end
  all[#all + 1] = {k, t, redis.call("PTTL", k), v}
end
return all`
	becomeCopy = `
for _, k in ipairs(redis.call("KEYS", "*")) do redis.call("DEL", k) end
local i = 1
while i <= #ARGV do
  local k, t, ttl, n = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  i = i + 4
  if t == "string" then
    redis.call("SET", k, ARGV[i])
  elseif t == "list" then
    for j = i, i + n - 1 do redis.call("RPUSH", k, ARGV[j]) end
  else
    for j = i, i + n - 1, 2 do
      if t == "hash" then redis.call("HSET", k, ARGV[j], ARGV[j + 1]) else redis.call("ZADD", k, ARGV[j + 1], ARGV[j]) end
    end
  end
  if ttl >= 0 then redis.call("PEXPIRE", k, ttl) end
  i = i + n
end
return redis.status_reply("OK")`
)

func newHeir(t *testing.T, s *rwSimulation, rnd *rand.Rand) *rwHeir {
	link, err := rueidis.NewClient(s.server.Option())
	require.NoError(t, err)
	h := &rwHeir{s: s, link: link, rnd: rnd}
	h.copy()
	return h
}

// follow takes copies until stop is closed.
func (h *rwHeir) follow(stop <-chan struct{}) {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			h.copy()
		case <-stop:
			return
		}
	}
}

func (h *rwHeir) copy() {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := time.Now()
	all, err := h.link.Do(context.Background(), h.link.B().Eval().Script(copyAll).Numkeys(0).Build()).ToArray()
	if err != nil {
		h.s.violated("the replica cannot copy: %v", err)
		return
	}
	if len(h.copies) >= 50 {
		h.copies = h.copies[1:]
	}
	h.copies = append(h.copies, rwCopy{at, all})
}

// confirm answers WAIT. Now and then the replica does not answer in time.
func (h *rwHeir) confirm() int {
	h.mu.Lock()
	late := h.slow && h.rnd.IntN(50) == 0
	h.mu.Unlock()
	if late {
		return 0
	}
	h.copy()
	return 1
}

// takeOver makes the replica the server: with its newest copy, or one that is up to 300 ms old.
func (h *rwHeir) takeOver(newest bool) {
	for _, p := range h.s.procs {
		p.host.cutOff()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := len(h.copies) - 1
	if !newest {
		for back := time.Duration(h.rnd.Float64() * float64(300*time.Millisecond)); i > 0 && time.Since(h.copies[i].at) < back; i-- {
		}
	}
	c, now := h.copies[i], time.Now()
	var args []string
	for _, key := range c.keys {
		v, _ := key.ToArray()
		ttl, _ := v[2].AsInt64()
		if ttl >= 0 {
			if ttl -= now.Sub(c.at).Milliseconds(); ttl <= 0 {
				continue
			}
		}
		name, _ := v[0].ToString()
		kind, _ := v[1].ToString()
		values, _ := v[3].AsStrSlice()
		args = append(args, name, kind, strconv.FormatInt(ttl, 10), strconv.Itoa(len(values)))
		args = append(args, values...)
	}
	h.s.note("a replica takes over, with what was there %v ago", now.Sub(c.at))
	ctx := context.Background()
	if err := h.link.Do(ctx, h.link.B().Eval().Script(becomeCopy).Numkeys(0).Arg(args...).Build()).Error(); err != nil {
		h.s.violated("the replica cannot take over: %v", err)
	}
	if err := h.link.Do(ctx, h.link.B().ScriptFlush().Build()).Error(); err != nil {
		h.s.violated("the replica cannot take over: %v", err)
	}
}

// cutOff ends all connections of the host.
func (h *simHost) cutOff() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for c := range h.conns {
		h.disturbed(time.Now())
		c.end(errSimRefused)
	}
}

// upset notes that what the host asks for is refused until then.
func (h *simHost) upset(until time.Time) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.disturbed(until)
}

// strike does to the server what fate has for it, if possible when somebody has just begun to act.
func (s *rwSimulation) strike(rnd *rand.Rand) {
	s.mu.Lock()
	before := len(s.acts)
	s.mu.Unlock()
	for range 1000 {
		s.mu.Lock()
		now := len(s.acts)
		s.mu.Unlock()
		if now > before {
			break
		}
		time.Sleep(time.Millisecond)
	}
	s.note("the server: %v", s.fate)
	switch s.fate {
	case fateEmptied:
		s.server.Embedded.FlushAll()
	case fateBehind:
		s.heir.takeOver(false)
	case fateDurable:
		s.heir.takeOver(true)
	case fateMigrated:
		d := time.Duration(rnd.Float64() * float64(2*time.Second))
		s.mu.Lock()
		s.moving = time.Now().Add(d)
		s.mu.Unlock()
		for _, p := range s.procs {
			p.host.upset(time.Now().Add(d))
		}
		time.Sleep(d)
		for _, p := range s.procs {
			p.host.deafen()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.figures.Struck++
	if s.fate == fateEmptied || s.fate == fateBehind { // what was not replicated is forgotten: not promised
		s.lost = time.Now()
	}
}

// answer is what the server says by itself, before a command is run: WAIT is the replica's to answer, and a script of several keys is
// refused while their slot moves.
func (s *rwSimulation) answer(c *miniredis.Peer, cmd string, args []string) bool {
	switch {
	case cmd == "WAIT":
		c.WriteInt(s.heir.confirm())
		return true
	case strings.HasPrefix(cmd, "EVAL") && len(args) > 3 && args[1] != "0" && args[1] != "1":
		s.mu.Lock()
		refused := time.Now().Before(s.moving) && strings.Contains(strings.Join(args[2:4], " "), simName)
		s.mu.Unlock()
		if refused {
			c.WriteError("TRYAGAIN Multiple keys request during rehashing of slot")
		}
		return refused
	}
	return false
}

// longWork is how often somebody acts for seconds under faults. Where nothing is excused it is often: a hold that went unnoticed is seen
// if somebody acts under it.
func (s *rwSimulation) longWork() float64 {
	if s.fate == fateDurable {
		return 0.2
	}
	return 0.02
}
