package redistest

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// Reply returns the reply that a text describes, for fuzz targets of decoders: any text describes one. A line is one
// value in RESP3 without lengths: ":12", "$text", "-ERR text", "_" or ",1.5". A line "*" or "%" begins an array or a
// map, which the line "." ends.
func Reply(text string) (reply rueidis.RedisMessage) {
	const expiry = 7 // bytes, before the value in rueidis' format for caches
	packed, _ := pack(make([]byte, expiry), strings.Split(text, "\n"))
	if err := reply.CacheUnmarshalView(packed); err != nil {
		panic(err)
	}
	return reply
}

// pack appends the value that the first lines describe, in rueidis' format for caches, and returns the lines after it.
func pack(packed []byte, lines []string) ([]byte, []string) {
	if len(lines) == 0 || lines[0] == "" {
		return packNumber(packed, '_', 0), lines[min(1, len(lines)):]
	}
	kind, text, lines := lines[0][0], lines[0][1:], lines[1:]
	switch kind {
	case ':', '#':
		number, _ := strconv.ParseInt(text, 10, 64) // the nearest, if it is too great
		return packNumber(packed, kind, number), lines
	case '$', '+', '-', '!', ',', '(':
		return append(packNumber(packed, kind, int64(len(text))), text...), lines
	case '*', '~', '%':
	default:
		return packNumber(packed, '_', 0), lines
	}
	begin, count := len(packed)+1, uint64(0)
	packed = packNumber(packed, kind, 0)
	for len(lines) > 0 && lines[0] != "." {
		packed, lines = pack(packed, lines)
		count++
	}
	if kind == '%' && count%2 == 1 { // no server sends a field without a value
		packed = packNumber(packed, '_', 0)
		count++
	}
	binary.BigEndian.PutUint64(packed[begin:], count)
	return packed, lines[min(1, len(lines)):]
}

func packNumber(packed []byte, kind byte, number int64) []byte {
	return binary.BigEndian.AppendUint64(append(packed, kind), uint64(number))
}
