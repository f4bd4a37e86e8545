package redlatchdebug

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"runtime"
	"time"
)

// writeProfile writes the sums as a compressed profile.proto, the format of pprof
// (https://github.com/google/pprof/blob/main/proto/profile.proto). began is when the profile begins. The numbers of
// fields are those of that file.
func writeProfile(w io.Writer, sums map[callSite]waitSum, began time.Time) error {
	p := profile{strings: map[string]uint64{"": 0}, texts: []string{""},
		functions: map[functionKey]uint64{}, locations: map[uintptr]uint64{}}
	p.valueType(1, "contentions", "count")
	p.valueType(1, "delay", "nanoseconds")
	p.out = message(p.out, 3, func(b []byte) []byte { // one mapping: pprof has no symbols to look up
		for _, field := range []int{1, 7, 8, 9, 10} {
			b = number64(b, field, 1)
		}
		return b
	})
	for site, sum := range sums {
		p.sample(site, sum)
	}
	p.out = number64(p.out, 9, uint64(began.UnixNano()))
	p.out = number64(p.out, 10, uint64(time.Since(began)))
	p.valueType(11, "contentions", "count")
	p.out = number64(p.out, 12, 1)
	for _, text := range p.texts {
		p.out = bytesField(p.out, 6, []byte(text))
	}
	compressed := gzip.NewWriter(w)
	if _, err := compressed.Write(p.out); err != nil {
		return err
	}
	return compressed.Close()
}

// profile is a profile that is being written.
type profile struct {
	out       []byte
	texts     []string
	strings   map[string]uint64 // the indexes of texts
	functions map[functionKey]uint64
	locations map[uintptr]uint64
}

type functionKey struct{ name, file string }

func (p *profile) text(s string) uint64 {
	index, known := p.strings[s]
	if !known {
		index = uint64(len(p.texts))
		p.strings[s], p.texts = index, append(p.texts, s)
	}
	return index
}

func (p *profile) valueType(field int, name, unit string) {
	p.out = message(p.out, field, func(b []byte) []byte {
		return number64(number64(b, 1, p.text(name)), 2, p.text(unit))
	})
}

func (p *profile) sample(site callSite, sum waitSum) {
	var locations, values []byte
	for _, pc := range site.stack {
		if pc != 0 {
			locations = binary.AppendUvarint(locations, p.location(pc))
		}
	}
	values = binary.AppendUvarint(values, uint64(sum.count))
	values = binary.AppendUvarint(values, uint64(sum.time))
	p.out = message(p.out, 2, func(b []byte) []byte {
		b = bytesField(bytesField(b, 1, locations), 2, values)
		for _, label := range [][2]string{{"holder", site.holder}, {"kind", site.kind}} {
			b = message(b, 3, func(b []byte) []byte {
				return number64(number64(b, 1, p.text(label[0])), 2, p.text(label[1]))
			})
		}
		return b
	})
}

// location returns the id of the location of a return address, with a line for each function that is inlined there.
func (p *profile) location(pc uintptr) uint64 {
	if id, known := p.locations[pc]; known {
		return id
	}
	id := uint64(len(p.locations) + 1)
	p.locations[pc] = id
	var lines [][2]uint64
	frames := runtime.CallersFrames([]uintptr{pc})
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		lines = append(lines, [2]uint64{p.function(frame), uint64(frame.Line)})
	}
	p.out = message(p.out, 4, func(b []byte) []byte {
		b = number64(number64(number64(b, 1, id), 2, 1), 3, uint64(pc))
		for _, line := range lines {
			b = message(b, 4, func(b []byte) []byte { return number64(number64(b, 1, line[0]), 2, line[1]) })
		}
		return b
	})
	return id
}

func (p *profile) function(frame runtime.Frame) uint64 {
	key := functionKey{frame.Function, frame.File}
	if id, known := p.functions[key]; known {
		return id
	}
	id := uint64(len(p.functions) + 1)
	p.functions[key] = id
	p.out = message(p.out, 5, func(b []byte) []byte {
		b = number64(number64(b, 1, id), 2, p.text(frame.Function))
		return number64(number64(b, 3, p.text(frame.Function)), 4, p.text(frame.File))
	})
	return id
}

// The wire format of protocol buffers: a field is its number and type, and then a number or a length and bytes.
const wireNumber, wireBytes = 0, 2

func number64(b []byte, field int, n uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(field<<3|wireNumber)), n)
}

func bytesField(b []byte, field int, content []byte) []byte {
	b = binary.AppendUvarint(b, uint64(field<<3|wireBytes))
	return append(binary.AppendUvarint(b, uint64(len(content))), content...)
}

func message(b []byte, field int, write func([]byte) []byte) []byte {
	return bytesField(b, field, write(nil))
}
