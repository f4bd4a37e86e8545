package table

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest/rig"
)

const (
	day  = 86_400_000_000 // µs
	band = 3_000_000_000_000_000
	// instants is INSTANT of queue.lua: the score of an instant in a queue is -instants - ms.
	instants = 4_000_000_000_000
	// slack is how much of a second, or of a number of ms, a real server may be off. The times in a table are further
	// apart.
	slack = 30
)

var (
	instant = regexp.MustCompile(
		`-\((now|NOW)(?:([+-][\d.]+)s)?(\+3e15|\+4e12)?\)|\b(now|NOW)\b(?:([+-][\d.]+)s)?(\+3e15)?`)
	digits = regexp.MustCompile(`-?\b(?:\d{13}|\d{16})\b`)
	amount = regexp.MustCompile(`\b(?:now|NOW)\b(?:[+-][\d.]+s)?|\b\d+(?:\.\d+)?s\b|=-\d{3,8}\b|\b\d{5,8}\b`)
)

// value is what a word stands for.
func (f *file) value(word string) string {
	for _, n := range f.names {
		word = strings.ReplaceAll(word, n.short, n.long)
	}
	return word
}

// words are the words of a line, as they are sent.
func (p *player) words(t *testing.T, line string) (all []string) {
	t.Helper()
	call, args, _ := strings.Cut(line, " ")
	script, _, _ := strings.Cut(call, "+")
	if keys, ok := p.keys[script]; ok && !strings.Contains(" "+line+" ", " | ") {
		line = call + " " + keys + " | " + args
	}
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		word, rest, _ := strings.Cut(line, " ")
		if quoted, err := strconv.QuotedPrefix(line); err == nil {
			word, err = strconv.Unquote(quoted)
			require.NoError(t, err)
			rest = line[len(quoted):]
		}
		line = rest
		word = instant.ReplaceAllStringFunc(p.value(word), func(text string) string {
			m := instant.FindStringSubmatch(text)
			unit, off := m[1]+m[4], m[2]+m[5]
			n := p.began
			if off != "" {
				s, err := strconv.ParseFloat(off, 64)
				require.NoError(t, err, text)
				n += int64(math.Round(s * 1e6))
			}
			if unit == "now" {
				n /= 1000
			}
			switch m[3] + m[6] {
			case "+3e15":
				n += band
			case "+4e12":
				n += instants
			}
			if text[0] == '-' {
				n = -n
			}
			return rig.Dec(n)
		})
		all = append(all, word)
	}
	return all
}

// unname is the inverse of value, and has instants relative to the row's begin.
func (p *player) unname(text string) string {
	byLength := slices.SortedFunc(slices.Values(p.names), func(a, b name) int { return len(b.long) - len(a.long) })
	for _, n := range byLength {
		text = strings.ReplaceAll(text, n.long, n.short)
	}
	return digits.ReplaceAllStringFunc(text, func(text string) string {
		n, err := strconv.ParseInt(text, 10, 64)
		size, unit, suffix := max(n, -n), "now", ""
		var us int64
		if size < 1e15 {
			if us = size*1000 - p.began/1000*1000; us > (instants-40*day/1000)*1000 {
				us, suffix = us-instants*1000, "+4e12"
			}
		} else {
			unit, us = "NOW", size-p.began
			if us > band-40*day {
				us, suffix = us-band, "+3e15"
			}
		}
		if err != nil || us < -40*day || us > 40*day {
			return text
		}
		if us != 0 {
			s := strconv.FormatFloat(float64(us)/1e6, 'f', -1, 64)
			if us > 0 {
				s = "+" + s
			}
			unit += s + "s"
		}
		if n < 0 {
			return "-(" + unit + suffix + ")"
		}
		return unit + suffix
	})
}

// word is a value as a word of a line.
func (p *player) word(value string) string {
	text := p.unname(value)
	if text == "" || strings.ContainsRune(text, ' ') || strconv.Quote(text) != `"`+text+`"` {
		return strconv.Quote(text)
	}
	return text
}

// write makes a key.
func (p *player) write(t *testing.T, key, text string) {
	t.Helper()
	key, words := p.words(t, key)[0], p.words(t, text)
	kind, end, fields := words[0], words[1], words[2:]
	for _, field := range fields {
		switch kind {
		case "hash":
			name, value, ok := strings.Cut(field, "=")
			require.True(t, ok, field)
			rig.Must(t, p.c, "HSET", key, name, value)
		case "zset":
			at := strings.LastIndexByte(field, '=')
			require.Positive(t, at, field)
			rig.Must(t, p.c, "ZADD", key, field[at+1:], field[:at])
		case "list":
			rig.Must(t, p.c, "RPUSH", key, field)
		case "stream":
			entry := strings.Split(field, "/")
			add := []string{"XADD", key, entry[0]}
			for _, pair := range entry[1:] {
				name, value, ok := strings.Cut(pair, "=")
				require.True(t, ok, field)
				add = append(add, name, value)
			}
			rig.Must(t, p.c, add...)
		case "string":
			rig.Must(t, p.c, "SET", key, field)
		default:
			require.Fail(t, "no type of keys", "%s %s", key, text)
		}
	}
	if end != "-" {
		s, err := strconv.ParseFloat(strings.TrimSuffix(end, "s"), 64)
		require.NoError(t, err, text)
		rig.Must(t, p.c, "PEXPIRE", key, rig.Dec(int64(math.Round(s*1000))))
	}
}

// read is what the server has; where a time is near to that of want it is said as in want.
func (p *player) read(t *testing.T, want state) state {
	t.Helper()
	is := state{}
	passed := (micros(t, p.c) - p.began) / 1000 // ends are told from the row's begin, so that they stand still
	for _, key := range rig.Keys(t, p.c) {
		kind := rig.Text(t, p.c, "TYPE", key)
		end := "-"
		if ms := rig.Number(t, p.c, "PTTL", key); ms >= 0 {
			end = strconv.FormatFloat(float64(ms+passed)/1e3, 'f', -1, 64) + "s"
		} else if ms == -2 {
			continue // since it was listed
		}
		text := kind + " " + end
		fields := p.fields(t, kind, key)
		for i := range fields {
			fields[i] = p.word(fields[i])
		}
		if kind != "list" && kind != "stream" {
			slices.Sort(fields)
		}
		text = strings.Join(append([]string{text}, fields...), " ")
		is[p.word(key)] = p.near(want[p.word(key)], text)
	}
	return is
}

// fields is what a key holds.
func (p *player) fields(t *testing.T, kind, key string) (all []string) {
	t.Helper()
	switch kind {
	case "hash":
		for field, value := range rig.Hash(t, p.c, key) {
			all = append(all, field+"="+value)
		}
	case "zset":
		scores, err := rig.Raw(p.c, "ZRANGE", key, "0", "-1", "WITHSCORES").AsZScores()
		require.NoError(t, err)
		for _, z := range scores {
			all = append(all, z.Member+"="+strconv.FormatFloat(z.Score+0, 'f', -1, 64)) // +0: not -0
		}
	case "list":
		list, err := rig.Raw(p.c, "LRANGE", key, "0", "-1").AsStrSlice()
		require.NoError(t, err)
		all = list
	case "stream":
		entries, err := rig.Raw(p.c, "XRANGE", key, "-", "+").AsXRangeSlices()
		require.NoError(t, err)
		for _, e := range entries {
			entry := e.ID
			for _, f := range e.FieldValues {
				entry += "/" + f.Field + "=" + f.Value
			}
			all = append(all, entry)
		}
	case "string":
		all = []string{rig.Text(t, p.c, "GET", key)}
	}
	return all
}

// errorCode is that of an error, as WRONGTYPE. Servers differ in the rest.
var errorCode = regexp.MustCompile(`\b[A-Z]{4,}\b`)

var anyNumber = regexp.MustCompile(`^\d+$`)

// near is want if got is the same but for times that a real server may have a little later, and got otherwise. Of an
// error want may be a part.
func (p *player) near(want, got string) string {
	if text, failed := strings.CutPrefix(got, "error: "); failed {
		if part, wanted := strings.CutPrefix(want, "error: "); wanted && strings.Contains(text, part) {
			return want
		}
		return "error: " + cmp.Or(errorCode.FindString(text), text)
	}
	wants, gots := strings.Fields(want), strings.Fields(got)
	for i := range wants {
		if wants[i] == "*" && len(wants) == len(gots) && anyNumber.MatchString(gots[i]) {
			gots[i] = "*"
			got = strings.Join(gots, " ")
		}
	}
	a, b := amount.FindAllString(want, -1), amount.FindAllString(got, -1)
	if p.exact || len(a) != len(b) || amount.ReplaceAllString(want, "#") != amount.ReplaceAllString(got, "#") {
		return got
	}
	for i := range a {
		x, unit := seconds(a[i])
		y, other := seconds(b[i])
		if unit != other || math.Abs(x-y) > slack {
			return got
		}
	}
	return want
}

// nearAll is near for lists.
func (p *player) nearAll(want, got []string) []string {
	for i := range got {
		if len(want) == len(got) {
			got[i] = p.near(want[i], got[i])
		}
	}
	return got
}

// seconds are those of an amount: an instant, a duration, or a number of ms.
func seconds(amount string) (s float64, unit string) {
	if rest, ok := strings.CutPrefix(strings.ToLower(amount), "now"); ok {
		s, _ = strconv.ParseFloat(strings.TrimSuffix(rest, "s"), 64)
		return s, amount[:3]
	}
	if rest, ok := strings.CutSuffix(amount, "s"); ok {
		s, _ = strconv.ParseFloat(rest, 64)
		return s, "s"
	}
	s, _ = strconv.ParseFloat(strings.TrimPrefix(amount, "=-"), 64)
	return s / 1000, "ms"
}
