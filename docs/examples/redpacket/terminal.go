package main

import (
	"fmt"
	"strings"
)

const (
	barWidth = 50 // characters
	maxBins  = 20
	maxNamed = 10 // users listed one by one
)

// text is the chart and the summary.
func (p *party) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "packet %s on %s: %s in %d shares, %v\n\n", p.name, p.where, money(p.spec.Total), p.spec.Shares,
		p.spec.Method)
	if len(p.shares) > 0 {
		p.histogram(&b)
		p.list(&b)
	}
	row := func(label, value, more string) { fmt.Fprintf(&b, "%-12s %14s%s\n", label, value, more) }
	var taken int64
	for _, s := range p.shares {
		taken += s.Cents
	}
	row("users", fmt.Sprint(p.users), fmt.Sprintf("  each tapped twice, in %.2f s", p.took.Seconds()))
	row("shares taken", fmt.Sprint(len(p.shares)), fmt.Sprintf("  of %d", p.spec.Shares))
	row("came late", fmt.Sprint(p.empty), "")
	row("taken", money(taken), "")
	row("refunded", money(p.refund.Cents), "")
	if n := int64(len(p.shares)); n > 0 {
		best := p.best()
		row("mean", money(taken/n), "")
		row("best luck", money(best.Cents), fmt.Sprintf("  %s, share %d", best.User, best.Ordinal))
	}
	if len(p.faults) == 0 {
		fmt.Fprintf(&b, "check ok: no user took two shares, each got the same answer twice, %s taken + %s refunded = %s\n",
			money(taken), money(p.refund.Cents), money(p.spec.Total))
	}
	for _, f := range p.faults {
		fmt.Fprintln(&b, "CHECK FAILED:", f)
	}
	return b.String()
}

// histogram draws how many shares were how large.
func (p *party) histogram(b *strings.Builder) {
	bins := p.bins(maxBins)
	most, wide := 0, 0
	for _, x := range bins {
		most, wide = max(most, x.count), max(wide, len(money(x.to-1)))
	}
	for _, x := range bins {
		fmt.Fprintf(b, "%*s to %*s %s %d\n", wide, money(x.from), wide, money(x.to-1), bar(x.count, most), x.count)
	}
	b.WriteByte('\n')
}

// bar is count as a bar, of which most fills the width, in eighths of a character.
func bar(count, most int) string {
	const parts = "▏▎▍▌▋▊▉"
	eighths := (count*barWidth*8 + most/2) / most
	if count > 0 {
		eighths = max(1, eighths)
	}
	s := strings.Repeat("█", eighths/8)
	if r := eighths % 8; r > 0 {
		s += string([]rune(parts)[r-1])
	}
	return s
}

// list shows the first users and their shares.
func (p *party) list(b *strings.Builder) {
	best := p.best()
	for i, s := range p.shares {
		if i == maxNamed {
			fmt.Fprintf(b, "      … and %d more\n", len(p.shares)-i)
			break
		}
		luck := ""
		if s.Ordinal == best.Ordinal {
			luck = "  best luck"
		}
		fmt.Fprintf(b, "%5d %-12s %12s%s\n", s.Ordinal, s.User, money(s.Cents), luck)
	}
	b.WriteByte('\n')
}
