package main

import (
	"fmt"
	"html"
	"strings"
)

const (
	svgWidth, svgHeight = 960, 620
	left, right         = 80, 930
	maxBars             = 850 // of the order of taking: one a pixel
)

// svg is the same picture twice: the amounts in the order of taking, and how many shares were how large.
func (p *party) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+
		"\n", svgWidth, svgHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", svgWidth, svgHeight)
	title := fmt.Sprintf("%s: %s in %d shares, %v, %d taken", p.name, money(p.spec.Total), p.spec.Shares, p.spec.Method,
		len(p.shares))
	fmt.Fprintf(&b, `<text x="%d" y="30" font-size="18">%s</text>`+"\n", left, html.EscapeString(title))
	if len(p.shares) > 0 {
		p.svgOrder(&b, 60, 290)
		p.svgBins(&b, 360, 560)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// svgOrder draws a bar for every share between the heights top and bottom; of more shares than pixels, the largest of
// each group.
func (p *party) svgOrder(b *strings.Builder, top, bottom float64) {
	group := (len(p.shares) + maxBars - 1) / maxBars
	best := p.best()
	bars := (len(p.shares) + group - 1) / group
	wide := float64(right-left) / float64(bars)
	var sum int64
	for i := range bars {
		var high int64
		lucky := false
		for _, s := range p.shares[i*group : min((i+1)*group, len(p.shares))] {
			high = max(high, s.Cents)
			lucky = lucky || s.Ordinal == best.Ordinal
			sum += s.Cents
		}
		fill := "#d0342c"
		if lucky {
			fill = "#f0b323"
		}
		h := (bottom - top) * float64(high) / float64(best.Cents)
		fmt.Fprintf(b, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"/>`+"\n", left+float64(i)*wide, bottom-h,
			max(0.8, wide*0.9), h, fill)
	}
	mean := float64(sum) / float64(len(p.shares))
	y := bottom - (bottom-top)*mean/float64(best.Cents)
	fmt.Fprintf(b, `<line x1="%d" y1="%.2f" x2="%d" y2="%.2f" stroke="#333" stroke-dasharray="4 3"/>`+"\n", left, y,
		right, y)
	fmt.Fprintf(b, `<text x="%d" y="%.2f" text-anchor="end">mean %s</text>`+"\n", left-6, y+4, money(int64(mean)))
	fmt.Fprintf(b, `<text x="%d" y="%.2f" text-anchor="end">%s</text>`+"\n", left-6, top+10, money(best.Cents))
	fmt.Fprintf(b, `<text x="%d" y="%.2f">in the order of taking; best luck: %s, share %d</text>`+"\n", left, bottom+20,
		html.EscapeString(best.User), best.Ordinal)
}

// svgBins draws the histogram between the heights top and bottom.
func (p *party) svgBins(b *strings.Builder, top, bottom float64) {
	bins := p.bins(40)
	most := 0
	for _, x := range bins {
		most = max(most, x.count)
	}
	wide := float64(right-left) / float64(len(bins))
	for i, x := range bins {
		h := (bottom - top) * float64(x.count) / float64(most)
		fmt.Fprintf(b, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="#7a8ba5"><title>%s to %s: %d</title></rect>`+
			"\n",
			left+float64(i)*wide, bottom-h, wide*0.95, h, money(x.from), money(x.to-1), x.count)
	}
	fmt.Fprintf(b, `<text x="%d" y="%.2f" text-anchor="end">%d</text>`+"\n", left-6, top+10, most)
	fmt.Fprintf(b, `<text x="%d" y="%.2f">%s</text>`+"\n", left, bottom+20, money(bins[0].from))
	fmt.Fprintf(b, `<text x="%d" y="%.2f" text-anchor="end">%s</text>`+"\n", right, bottom+20,
		money(bins[len(bins)-1].to-1))
	fmt.Fprintf(b, `<text x="%d" y="%.2f" text-anchor="middle">number of shares by amount</text>`+"\n", (left+right)/2,
		bottom+40)
}
