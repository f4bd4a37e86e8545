package dialect_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/dialect"
)

func TestAScriptThatKeepsToTheDialectIsFoundToDoSo(t *testing.T) {
	for name, text := range map[string]string{
		"a key of a loop":    "for i = 1, #KEYS do\n  redis.call('GET', KEYS[i])\nend\n",
		"a key by its index": "local n = #KEYS / 2\nredis.call('GET', KEYS[2 * n - 1])\n",
		"each key":           "for _, key in ipairs(KEYS) do\n  redis.call('GET', key)\nend\n",
		"all keys":           "redis.call('UNLINK', unpack(KEYS))\n",
		"a part of the keys": "local some = {unpack(KEYS, 2, 3)}\nredis.call('DEL', some[1])\n",
		"a choice of keys":   "local key = ARGV[1] == '1' and KEYS[1] or KEYS[2]\nredis.call('GET', key)\n",
		"no key":             "local key = ARGV[1] and KEYS[1]\nif key then\n  redis.call('GET', key)\nend\n",
		"a parameter":        "local function f(key)\n  redis.call('GET', key)\nend\nf(KEYS[1])\nf(KEYS[2])\n",
		"a result":           "local function f(i)\n  return i, KEYS[i]\nend\nlocal _, key = f(2)\nredis.call('GET', key)\n",
		"a field":            "local s = {key = KEYS[1], n = 1}\ns.n = 2\nredis.call('GET', s.key)\n",
		"a field of one in a list": "local all = {}\nall[1] = {key = KEYS[1]}\n" +
			"for i = 1, #all do\n  local l = all[i]\n  redis.call('GET', l.key)\nend\n",
		"a list": "local all = {}\nfor i = 1, #KEYS, 2 do\n  all[#all + 1] = KEYS[i]\nend\n" +
			"redis.call('EXISTS', unpack(all))\n",
		"keys of a part": "local function one(KEYS)\n  redis.call('GET', KEYS[1])\nend\n" +
			"one({unpack(KEYS, 1, 2)})\n",
		"a name that is another's elsewhere": "local function f(key)\n  return key .. 'x'\nend\n" +
			"local key = KEYS[1]\nredis.call('SET', key, f('y'))\n",
		"no key at all": "redis.call('TIME')\nredis.pcall('PUBLISH', ARGV[1], '0')\n" +
			"redis.pcall('PUBSUB', 'NUMSUB', ARGV[1])\n",
	} {
		s, err := dialect.Read(text)
		require.NoError(t, err, name)
		require.Empty(t, s.Wrong, name)
	}
}

func TestAScriptThatLeavesTheDialectIsFound(t *testing.T) {
	const undeclared = "argument 1 of GET is not shown to be of KEYS"
	for _, c := range []struct{ text, wrong string }{
		{"redis.call('GET', KEYS[1] .. ':x')", undeclared},
		{"redis.call('GET', ARGV[1])", undeclared},
		{"redis.call('GET', 'x')", undeclared},
		{"local key = KEYS[1]\nkey = key .. 'x'\nredis.call('GET', key)", undeclared},
		{"local key = KEYS[1]\nredis.call('GET', key)\nkey = ARGV[1]", undeclared}, // in a loop it would be the next
		{"local key = ARGV[1] == '1' and ARGV[2] or KEYS[1]\nredis.call('GET', key)", undeclared},
		{"local function f(key)\n  redis.call('GET', key)\nend\nf(KEYS[1])\nf(ARGV[1])", undeclared},
		{"local function f(key)\n  redis.call('GET', key)\nend\nlocal g = f\ng(ARGV[1])", undeclared},
		{"local function f()\n  return KEYS[1], ARGV[1]\nend\nlocal _, key = f()\nredis.call('GET', key)", undeclared},
		{"local function f(x)\n  if x then\n    return 'y'\n  end\n  return KEYS[1]\nend\nredis.call('GET', f(1))",
			undeclared},
		{"local function f(...)\n  redis.call('GET', ...)\nend\nf(ARGV[1])", undeclared},
		{"local s = {key = KEYS[1]}\nlocal other = {key = ARGV[1]}\nredis.call('GET', s.key)", undeclared},
		{"local s = {key = KEYS[1]}\ns[ARGV[1]] = ARGV[2]\nredis.call('GET', s.key)", undeclared},
		{"local s = {key = KEYS[1]}\nlocal other = s\nother[ARGV[1]] = ARGV[2]\nredis.call('GET', s.key)", undeclared},
		{"local s = {key = KEYS[1]}\nlocal function f(x)\n  x[ARGV[1]] = 1\nend\nf(s)\nredis.call('GET', s.key)", undeclared},
		{"local all = {KEYS[1], ARGV[1]}\nredis.call('GET', all[1])", undeclared},
		{"local all = {KEYS[1]}\nlocal other = all\nother[2] = ARGV[1]\nredis.call('GET', all[2])", undeclared},
		{"local all = {KEYS[1]}\ntable.insert(all, ARGV[1])\nredis.call('GET', all[2])", undeclared},
		{"local all = {{KEYS[1]}}\nlocal one = all[1]\none[1] = ARGV[1]\nredis.call('GET', all[1][1])", undeclared},
		{"KEYS[1] = ARGV[1]\nredis.call('GET', KEYS[1])", undeclared},
		{"local KEYS = ARGV\nredis.call('GET', KEYS[1])", undeclared},
		{"for _, key in ipairs(ARGV) do\n  redis.call('GET', key)\nend", undeclared},
		{"for key in string.gmatch(ARGV[1], '%a') do\n  redis.call('GET', key)\nend", undeclared},
		{"redis.call('DEL', KEYS[1], ARGV[1])", "argument 2 of DEL is not shown to be of KEYS"},
		{"redis.call('DEL', unpack(ARGV))", "argument 1 of DEL is not shown to be of KEYS"},
		{"redis.call('DEL')", "calls DEL without a key"},
		{"redis.pcall(ARGV[1], ARGV[2], '0')", "calls a command whose name is not a literal"},
		{"redis.pcall('S' .. 'ET', KEYS[1], '0')", "calls a command whose name is not a literal"},
		{"redis.pcall(ARGV[1] and 'GET' or 'DEL', KEYS[1])", "calls a command whose name is not a literal"},
		{"redis.pcall('PUBSUB', ARGV[1], 'c')", "calls a subcommand of PUBSUB whose name is not a literal"},
		{"redis.call('get', KEYS[1])", "calls get, not in capitals"},
		{"local call = redis.call\ncall('GET', KEYS[1])", "uses redis.call otherwise than to call it"},
		{"(x and redis.pcall or redis.call)('GET', KEYS[1])", "uses redis.pcall otherwise than to call it"},
		{"local r = redis\nr.call('GET', KEYS[1])", "uses redis otherwise than to call a function of it"},
		{"redis['call']('GET', ARGV[1])", "argument 1 of GET is not shown to be of KEYS"},
		{"redis.setresp(3)", "calls redis.setresp"},
		{"loadstring('return 1')()", "uses loadstring, which the dialect has not"},
		{"x = 1", "assigns to x, which is no local variable"},
	} {
		s, err := dialect.Read(c.text + "\n")
		require.NoError(t, err, c.text)
		require.Contains(t, strings.Join(s.Wrong, "\n"), c.wrong, c.text)
	}
	_, err := dialect.Read("local = 1")
	require.Error(t, err)
}

func TestTheCommandsOfAScriptAreRead(t *testing.T) {
	s, err := dialect.Read("redis.call('TIME')\nredis.pcall('PUBSUB', 'NUMSUB', ARGV[1])\nredis.call('GET', KEYS[1])\n" +
		"redis.call('GET', KEYS[2]) -- redis.call('DEL', KEYS[1])\nreturn \"redis.call('SET', KEYS[1])\"\n")
	require.NoError(t, err)
	require.Equal(t, []string{"GET", "PUBSUB|NUMSUB", "TIME"}, s.Commands)
}
