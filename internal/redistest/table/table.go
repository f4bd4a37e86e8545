// Package table runs script tables: files that say, row by row, what a server has, what is called, what the call
// replies, publishes and changes, and what a second run of the same request does. Format describes the files.
package table

import (
	"cmp"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/internal/script"
)

// Format of a table:
//
//	# a comment
//	let alice = 0f8b3c52-5a1e-8c61-9d0a-6f4f3a2b1c0d:1   the name stands for the value, in all lines below
//	hear redisson_lock__channel:*                        messages on these channels are compared
//	listen grants:alice                                  so are these, and scripts see that a process listens; a channel
//	                                                     that stands there twice has a second process that listens
//
//	== held by another                                   a row
//	l hash 90s bob=1                                     the server has: key, type, end ("-": none), what it holds
//	> acquire l | alice 300000 0                         a call: script, keys | arguments
//	< 0 90000 now                                        its reply
//	l hash 300s alice=1                                  a key that the call has changed ("gone": removed)
//	! redisson_lock__channel:{l} 0                       what it has published
//	again < 1                                            the second run: its reply, and lines as after the first
//	>> release l | alice                                 a call that is made once
//	$ DEL l                                              a command between two calls of a row
//
// Fields of hashes and sorted sets are field=value, and entries of streams id/field=value/field=value. now+300s is an
// instant in ms, NOW+300s one in µs, and -(now-5s) a negative one. The line "again" is left out where the second run
// replies the same, changes and publishes nothing. A word with a space is quoted as in Go. RUN is the number of the
// server's life, and * in a reply any number. Ends and instants are told from the begin of the row. A call without |
// has the keys that a line "keys acquire l" gives its script. With "go test -run TEST -update" the file is written with
// what happens.

var update = flag.Bool("update", false, "write the script tables with what the scripts do")

// How a table is run.
type How struct {
	// Scripts is the folder with the folder lua; nil: that of the test.
	Scripts fs.FS
	// Edits change the text of a script that is called as "script+edit".
	Edits map[string]*strings.Replacer
	// Call, if not nil, returns what makes the calls in place of a script, and returns their replies.
	Call func(t *testing.T, c rueidis.Client) func(t *testing.T, name string, args []string) string
	// Only is a server that the table is for; nil: the embedded one and a real one.
	Only func(t *testing.T) *redistest.Server
}

// RunAll runs the tables of a folder, side by side.
func RunAll(t *testing.T, folder string, how How) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			Run(t, file, how)
		})
	}
}

// Run runs the rows of a table on the embedded server, whose clock stands still but for a millisecond between two
// steps, so that all times are compared exactly, and on a real one, where times may differ by half a minute.
func Run(t *testing.T, path string, how How) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	if how.Scripts == nil {
		how.Scripts = os.DirFS(".")
	}
	run := func(t *testing.T, s *redistest.Server) {
		f := parse(t, string(text))
		p := &player{file: f, how: how, c: s.Client(t), exact: s.Embedded != nil, texts: map[string]string{},
			clock: func(time.Time) {}}
		if p.exact {
			p.clock = s.Embedded.SetTime
		}
		f.names = append(f.names, name{short: "RUN", long: server(t, p.c)})
		if how.Call != nil {
			p.call = how.Call(t, p.c)
		}
		for i := range f.rows {
			t.Run(f.rows[i].name, func(t *testing.T) {
				want := f.rows[i]
				got := p.play(t, want)
				if *update {
					f.rows[i] = got
					return
				}
				require.Equal(t, f.render(want), f.render(got))
			})
		}
		if *update && p.exact {
			require.NoError(t, os.WriteFile(path, []byte(f.String()), 0o600))
		}
	}
	if how.Only != nil {
		run(t, how.Only(t))
		return
	}
	redistest.Each(t, run)
}

// player plays rows on a server.
type player struct {
	*file
	how   How
	c     rueidis.Client
	exact bool
	call  func(t *testing.T, name string, args []string) string
	texts map[string]string // of scripts

	clock func(time.Time) // of the embedded server
	began int64           // µs
}

// play returns the row as it turns out.
func (p *player) play(t *testing.T, want row) row {
	t.Helper()
	rig.Must(t, p.c, "FLUSHALL")
	at := time.Unix(1_900_000_000, 0)
	p.clock(at)
	p.began = micros(t, p.c)
	for _, key := range want.before.keys() {
		p.write(t, key, want.before[key])
	}
	ear := p.hear(t, want.listen)
	got := want
	got.steps = nil
	is := want.before
	for n, step := range want.steps {
		p.clock(at.Add(time.Duration(n) * time.Millisecond))
		if step.command != "" {
			rig.Must(t, p.c, p.words(t, step.command)...)
			is = p.read(t, p.read(t, is))
			got.steps = append(got.steps, step)
			continue
		}
		runs := [2]outcome{{}, {}}
		for n := range runs {
			if step.once && n > 0 {
				break
			}
			then := is.with(step.runs[n].changed)
			reply := p.run(t, step.call)
			now := p.read(t, then)
			runs[n] = outcome{reply: p.near(cmp.Or(step.runs[n].reply, step.runs[0].reply), reply), changed: is.changes(now),
				told: p.nearAll(step.runs[n].told, ear())}
			is = now
		}
		step.runs = runs
		got.steps = append(got.steps, step)
	}
	return got
}

// run makes a call once.
func (p *player) run(t *testing.T, call string) string {
	t.Helper()
	words := p.words(t, call)
	if p.call != nil {
		return p.unname(p.call(t, words[0], words[1:]))
	}
	text, ok := p.texts[words[0]]
	if !ok {
		name, edit, _ := strings.Cut(words[0], "+")
		var err error
		text, err = script.Compose(p.how.Scripts, name)
		require.NoError(t, err)
		if edit != "" {
			before := text
			text = p.how.Edits[edit].Replace(text)
			require.NotEqual(t, before, text, "the edit %s changes nothing", edit)
		}
		p.texts[words[0]] = text
	}
	n := slices.Index(words, "|")
	require.Positive(t, n, "keys and arguments have a | between them: %s", call)
	m, err := p.c.Do(t.Context(), p.c.B().Eval().Script(text).Numkeys(int64(n-1)).Key(words[1:n]...).
		Arg(words[n+1:]...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		return "error: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	return p.reply(t, m)
}

// reply is a reply as text.
func (p *player) reply(t *testing.T, m rueidis.RedisMessage) string {
	t.Helper()
	if list, err := m.ToArray(); err == nil {
		if len(list) == 0 {
			return "[]"
		}
		var all []string
		for _, v := range list {
			text := p.reply(t, v)
			if v.IsArray() {
				text = "[" + text + "]"
			}
			all = append(all, text)
		}
		return strings.Join(all, " ")
	}
	if m.IsNil() {
		return "nil"
	}
	if n, err := m.AsInt64(); err == nil {
		return p.word(rig.Dec(n))
	}
	text, err := m.ToString()
	require.NoError(t, err)
	return p.word(text)
}

// hear has the channels of the row listened to, and returns what is published since the last look.
func (p *player) hear(t *testing.T, listen string) func() []string {
	t.Helper()
	var channels, twice []string
	for _, channel := range p.words(t, listen) {
		if slices.Contains(channels, channel) {
			twice = append(twice, channel)
		} else {
			channels = append(channels, channel)
		}
	}
	if len(twice) > 0 {
		rig.Overhear(t, p.c, twice, nil)
	}
	ear, _ := rig.Overhear(t, p.c, channels, p.words(t, p.heard))
	return func() (told []string) {
		for _, m := range ear() {
			channel, payload, _ := strings.Cut(m, " ")
			told = append(told, p.word(channel)+" "+p.unname(payload))
		}
		slices.Sort(told) // miniredis keeps the order only among channels, and among patterns
		return told
	}
}

// server is the number that scripts know a server by, while it runs.
func server(t *testing.T, c rueidis.Client) string {
	t.Helper()
	_, id, _ := strings.Cut(rig.Text(t, c, "INFO", "server"), "run_id:")
	n, err := strconv.ParseInt(id[:13], 16, 64)
	require.NoError(t, err)
	return rig.Dec(n)
}

func micros(t *testing.T, c rueidis.Client) int64 {
	t.Helper()
	v, err := rig.Raw(c, "TIME").AsIntSlice()
	require.NoError(t, err)
	return v[0]*1_000_000 + v[1]
}
