package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Charts are drawn without help: bars and lines are all there is, and they must be legible on a light page and on a
// dark one, which the style sheet in each file takes care of.

// inks are the colours of the peers: on light, on dark. Redlatch's is used for nothing else; what is drawn dashed is a
// floor or the second setting of a peer.
var inks = map[string]struct {
	light, dark string
	dashed      bool
}{
	ours:                           {"#c2185b", "#ff6f9c", false},
	floor:                          {"#6b7280", "#9ca3af", true},
	setnx:                          {"#6b7280", "#9ca3af", true},
	claimFloor:                     {"#6b7280", "#9ca3af", true},
	"raw claim script":             {"#6b7280", "#9ca3af", true},
	"raw reserve, confirm scripts": {"#6b7280", "#9ca3af", true},
	"rueidislock":                  {"#1d4ed8", "#79a8ff", false},
	"rueidislock (defaults)":       {"#1d4ed8", "#79a8ff", true},
	"go-redisson":                  {"#0f766e", "#4fd1c5", false},
	"etcd":                         {"#6d28d9", "#b794f6", false},
	"redsync (go-redis)":           {"#b45309", "#f6ad55", false},
	"redsync (rueidis)":            {"#b45309", "#f6ad55", true},
	"redislock, 1 ms":              {"#15803d", "#68d391", false},
	"redislock, 100 ms":            {"#15803d", "#68d391", true},
	"ZSET, 10 ms":                  {"#15803d", "#68d391", true},
	"ZSET, 1 ms":                   {"#15803d", "#68d391", false},
	"count and key, 10 ms":         {"#15803d", "#68d391", true},
	"lock + GET + SET":             {"#1d4ed8", "#79a8ff", false},
}

type canvas struct {
	b             strings.Builder
	width, height int
	classes       map[string]string // ink class -> peer
}

// class is the ink of a peer; whatever has none of its own is redlatch's: its other verbs.
func (c *canvas) class(peer string) string {
	if _, ok := inks[peer]; !ok {
		peer = ours
	}
	name := "i"
	for _, r := range peer {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			name += string(r)
		}
	}
	c.classes[name] = peer
	return name
}

func dashed(peer string) string {
	if inks[peer].dashed {
		return ` stroke-dasharray="5 4"`
	}
	return ""
}

func (c *canvas) text(x, y float64, class, anchor, s string) {
	fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor,
		html.EscapeString(s))
}

// done wraps what was drawn: a title for those who see and for those who hear it, the style, the page.
func (c *canvas) done(title, note string) string {
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
		`aria-labelledby="t d">`+"\n", c.width, c.height, c.width, c.height)
	fmt.Fprintf(&out, "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n", html.EscapeString(title),
		html.EscapeString(note))
	var light, dark strings.Builder
	for _, name := range sortedKeys(c.classes) {
		ink := inks[c.classes[name]]
		fmt.Fprintf(&light, ".%s{fill:%s;stroke:%s}", name, ink.light, ink.light)
		fmt.Fprintf(&dark, ".%s{fill:%s;stroke:%s}", name, ink.dark, ink.dark)
	}
	fmt.Fprintf(&out, `<style>
text{font:12px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328;stroke:none}
.h{font-size:15px;font-weight:600}.n,.s{fill:#59636e}.n{font-size:11px}.o{font-weight:700}
.bg{fill:#fff}.g{stroke:#d1d9e0;stroke-width:1}.w{stroke:#1f2328;stroke-width:1}path{fill:none!important}
%s
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.n,.s{fill:#9198a1}.bg{fill:#0d1117}.g{stroke:#3d444d}.w{stroke:#e6edf3}
%s}
</style>
`, &light, &dark)
	fmt.Fprintf(&out, `<rect class="bg" width="%d" height="%d" rx="6"/>`+"\n", c.width, c.height)
	c2 := canvas{}
	c2.text(16, 26, "h", "start", title)
	c2.text(16, 44, "s", "start", note)
	out.WriteString(c2.b.String())
	out.WriteString(c.b.String())
	out.WriteString("</svg>\n")
	return out.String()
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// bar is one line of a bar chart.
type bar struct {
	peer  string
	value spread
	label string // what is written at its end
}

// bars draws values from the left, on a logarithmic scale if log, with a line from the lowest round to the highest.
func bars(title, note string, all []bar, log bool) string {
	const left, right, rowHeight, top = 190.0, 150.0, 24.0, 60.0
	c := &canvas{width: 760, classes: map[string]string{}}
	c.height = int(top + rowHeight*float64(len(all)) + 14)
	if len(all) == 0 {
		return c.done(title, note)
	}
	low, high := math.Inf(1), 0.0
	for _, b := range all {
		low, high = min(low, b.value.low), max(high, b.value.high)
	}
	plot := float64(c.width) - left - right
	at := func(v float64) float64 {
		if !log {
			return left + plot*v/max(high, 1e-9)
		}
		from := math.Log10(max(low, 1e-9)) - 0.3 // so that the lowest can be seen
		return left + plot*max(math.Log10(max(v, 1e-9))-from, 0)/max(math.Log10(high)-from, 1e-9)
	}
	for i, b := range all {
		y := top + rowHeight*float64(i)
		class := "n0"
		if b.peer == ours {
			class = "o"
		}
		c.text(left-8, y+15, class, "end", b.peer)
		end := at(b.value.median)
		opacity := "0.85"
		if inks[b.peer].dashed {
			opacity = "0.45"
		}
		fmt.Fprintf(&c.b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill-opacity="%s"/>`+"\n",
			c.class(b.peer), left, y+3, max(end-left, 1), rowHeight-8, opacity)
		fmt.Fprintf(&c.b, `<line class="w" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", at(b.value.low),
			at(b.value.high), y+11, y+11)
		c.text(max(at(b.value.high), end)+8, y+15, class, "start", b.label)
	}
	return c.done(title, note)
}

// line is one peer of a line chart: a value for each x, NaN where there is none.
type line struct {
	peer   string
	values []float64
}

// positives are the lowest and the highest value above 0; high is 0 if there is none.
func positives(all []line) (low, high float64) {
	low = math.Inf(1)
	for _, l := range all {
		for _, v := range l.values {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	return low, high
}

// lines draws values over xs, which are spaced evenly, on a logarithmic scale; format writes a value of it.
func lines(title, note string, xs []string, all []line, format func(float64) string) string {
	const left, right, top, bottom = 64.0, 190.0, 64.0, 40.0
	c := &canvas{width: 760, height: 420, classes: map[string]string{}}
	low, high := positives(all)
	if high == 0 || len(xs) == 0 {
		return c.done(title, note)
	}
	low, high = math.Log10(low)-0.08, math.Log10(high)+0.08
	width, height := float64(c.width)-left-right, float64(c.height)-top-bottom
	x := func(i int) float64 {
		if len(xs) == 1 {
			return left + width/2
		}
		return left + width*float64(i)/float64(len(xs)-1)
	}
	y := func(v float64) float64 { return top + height*(1-(math.Log10(v)-low)/(high-low)) }
	for e := math.Floor(low); e <= high; e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if l := math.Log10(v); l < low || l > high {
				continue
			}
			fmt.Fprintf(&c.b, `<line class="g" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", left, left+width, y(v), y(v))
			c.text(left-6, y(v)+4, "n", "end", format(v))
		}
	}
	for i, name := range xs {
		c.text(x(i), top+height+18, "n", "middle", name)
	}
	names := ends{}
	// redlatch last, so that it lies above the others
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(oursLast(a.peer), oursLast(b.peer)) })
	for _, l := range all {
		if at, ok := c.line(l, x, y); ok {
			names = append(names, end{l.peer, at})
		}
	}
	names.spread(top + height + 4)
	for _, e := range names {
		class := "n0"
		if e.peer == ours {
			class = "o"
		}
		fmt.Fprintf(&c.b, `<line class="%s" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke-width="3"%s/>`+"\n",
			c.class(e.peer), left+width+10, left+width+28, e.y, e.y, strings.Replace(dashed(e.peer), "5 4", "4 3", 1))
		c.text(left+width+34, e.y+4, class, "start", e.peer)
	}
	return c.done(title, note)
}

// line draws one peer of a line chart, and says at which height it ends; ok is false if it has no value.
func (c *canvas) line(l line, x func(i int) float64, y func(v float64) float64) (at float64, ok bool) {
	class, stroke := c.class(l.peer), 1.8
	if l.peer == ours {
		stroke = 3.2
	}
	var path strings.Builder
	last := -1
	for i, v := range l.values {
		if !(v > 0) {
			continue
		}
		verb := "L"
		if last < 0 {
			verb = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", verb, x(i), y(v))
		last = i
	}
	if last < 0 {
		return 0, false
	}
	fmt.Fprintf(&c.b, `<path class="%s" d="%s" stroke-width="%.1f"%s/>`+"\n", class, &path, stroke, dashed(l.peer))
	for i, v := range l.values {
		if v > 0 {
			fmt.Fprintf(&c.b, `<circle class="%s" cx="%.1f" cy="%.1f" r="%.1f"/>`+"\n", class, x(i), y(v), stroke+1)
		}
	}
	return y(l.values[last]), true
}

// end is where a line ends, and what is written there.
type end struct {
	peer string
	y    float64
}

type ends []end

// spread sorts the ends from above, and pushes them apart, none below bottom.
func (all ends) spread(bottom float64) {
	// names at the ends of the lines, pushed apart where they would cover each other
	slices.SortFunc(all, func(a, b end) int { return cmp.Compare(a.y, b.y) })
	const apart = 15.0
	for i := 1; i < len(all); i++ {
		all[i].y = max(all[i].y, all[i-1].y+apart)
	}
	if n := len(all); n > 0 {
		all[n-1].y = min(all[n-1].y, bottom)
		for i := n - 2; i >= 0; i-- {
			all[i].y = min(all[i].y, all[i+1].y-apart)
		}
	}
}

// oursLast sorts redlatch behind all others.
func oursLast(peer string) int {
	if peer == ours {
		return 1
	}
	return 0
}
