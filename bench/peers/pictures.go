package main

import (
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// pictures are the bars that draw makes: one file each.
var pictures = []struct {
	file, title, workload, setting string
	of                             func(l line) float64
}{
	{"uncontended.svg", "Uncontended: lock and unlock, us (p50)", uncontended, "1 goroutine",
		func(l line) float64 { return l.P50 }},
	{"contended.svg", "Contended: acquisitions a second", contended, "64 workers in 8 processes",
		func(l line) float64 { return l.Rate }},
	{"waits.svg", "Contended: 99 % of the waits are shorter, ms", contended, "64 workers in 8 processes",
		func(l line) float64 { return l.P99 / 1000 }},
	{"claims.svg", "The first N win: claims a second", claiming, "256 goroutines",
		func(l line) float64 { return l.Rate }},
}

// draw writes the pictures whose settings were measured.
func (f results) draw(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, picture := range pictures {
		all := slices.DeleteFunc(f.lines(), func(l line) bool {
			return l.Workload != picture.workload || l.Setting != picture.setting
		})
		if len(all) == 0 {
			continue
		}
		slices.Reverse(all) // the first at the top
		var names []string
		ours, others := make(plotter.Values, len(all)), make(plotter.Values, len(all))
		for i, l := range all {
			names = append(names, l.Peer)
			if p, err := peerNamed(l.Peer); err == nil && p.Module == here {
				ours[i] = picture.of(l)
			} else {
				others[i] = picture.of(l)
			}
		}
		plot.DefaultFont.Variant = "Sans"
		p := plot.New()
		p.Title.Padding = vg.Points(8)
		p.Title.Text, p.BackgroundColor = picture.title+", "+picture.setting, color.White
		for values, shade := range map[*plotter.Values]color.Color{&ours: color.RGBA{R: 200, G: 60, B: 40, A: 255},
			&others: color.RGBA{R: 140, G: 150, B: 160, A: 255}} {
			bars, err := plotter.NewBarChart(*values, vg.Points(12))
			if err != nil {
				return err
			}
			bars.Horizontal, bars.Color, bars.LineStyle.Width = true, shade, 0
			p.Add(bars)
		}
		p.NominalY(names...)
		p.X.Min, p.X.Max = 0, 1.05*p.X.Max
		height := vg.Points(70 + 20*float64(len(all)))
		if err := p.Save(vg.Points(520), height, filepath.Join(dir, picture.file)); err != nil {
			return err
		}
	}
	return nil
}
