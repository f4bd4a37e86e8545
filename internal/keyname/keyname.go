// Package keyname builds and checks the names of keys and channels by Redisson's rules, so that Java and Go processes
// use the same ones.
package keyname

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/errs"
)

// MaxLen is the longest key accepted, in bytes. Redis takes far more; a name this long is a bug at the caller.
const MaxLen = 64 << 10

// Check returns nil if key can be the main key of an object, and otherwise an error that wraps errs.ErrInvalidName and
// says why not.
//
// A name is text that other programs can keep, too: logs, labels of metrics, columns of a database. Those of PostgreSQL
// take no NUL byte.
//
// Redisson wraps a name in braces only if it contains no '{'. So three shapes put the derived keys of one object into
// another Cluster slot than its main key, where every script on both fails: an opening brace that is never closed, an
// empty pair that comes first, and a closing brace in a name without an opening one (the derived {a}b} hashes as "a").
//
// A key that another object has besides its own ([Derived], [Endings]) belongs to that object: while a lock named
// "redlatch_queue:{x}" is held, the queue of the lock "x" would be of another type.
func Check(key string) error {
	if why := derived(key); why != "" {
		return fmt.Errorf("%w: %.64q %s, so it is a key that another object has besides its own", errs.ErrInvalidName, key,
			why)
	}
	return Shape(key)
}

// Shape is Check for a key that is known to be its object's own.
func Shape(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty", errs.ErrInvalidName)
	case len(key) > MaxLen:
		return fmt.Errorf("%w: %.32q… has %d bytes, more than %d", errs.ErrInvalidName, key, len(key), MaxLen)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: %.64q is not valid UTF-8", errs.ErrInvalidName, key)
	case strings.IndexByte(key, 0) >= 0:
		return fmt.Errorf("%w: %.64q has a NUL byte", errs.ErrInvalidName, key)
	}
	open := strings.IndexByte(key, '{')
	if open < 0 {
		if strings.IndexByte(key, '}') >= 0 {
			return fmt.Errorf("%w: %.64q has a '}' and no '{', which splits it over Cluster slots", errs.ErrInvalidName, key)
		}
		return nil
	}
	switch strings.IndexByte(key[open:], '}') {
	case -1:
		return fmt.Errorf("%w: %.64q has a '{' that is never closed, which splits it over Cluster slots",
			errs.ErrInvalidName, key)
	case 1:
		return fmt.Errorf("%w: %.64q starts with an empty {}, which splits it over Cluster slots", errs.ErrInvalidName, key)
	}
	return nil
}

// Prefix is Redisson's prefixName: "p:{n}", or "p:n" if n has braces of its own.
func Prefix(p, n string) string {
	if strings.IndexByte(n, '{') >= 0 {
		return p + ":" + n
	}
	return p + ":{" + n + "}"
}

// Suffix is Redisson's suffixName: "{n}:s", or "n:s" if n has braces of its own.
func Suffix(n, s string) string {
	if strings.IndexByte(n, '{') >= 0 {
		return n + ":" + s
	}
	return "{" + n + "}:" + s
}

// Slot returns the Cluster hash slot of key: CRC16 (XMODEM) of its hash tag, or of the whole key, modulo 16384 (Redis
// Cluster specification, "Hash tags").
func Slot(key string) uint16 {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	var crc uint16
	for i := 0; i < len(key); i++ {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc & (Slots - 1)
}

// Slots is the number of hash slots of a Cluster.
const Slots = 16384

var crcTable = func() (t [256]uint16) {
	for i := range t {
		c := uint16(i) << 8
		for range 8 {
			if c&0x8000 != 0 {
				c = c<<1 ^ 0x1021
			} else {
				c <<= 1
			}
		}
		t[i] = c
	}
	return t
}()
