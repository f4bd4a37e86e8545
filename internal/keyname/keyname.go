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

// Shape is Check for a key that is known to be its object's own. "{x}{}" is none: see [Own].
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
	if n, ok := strings.CutSuffix(key, apart); ok && isPair(n) {
		return fmt.Errorf("%w: %.64q stands for %.64q in the other keys of that object", errs.ErrInvalidName, key, n)
	}
	return nil
}

// CheckPair refuses a key that is one pair of braces, as "{x}". It is for kinds of which Redisson's layout has keys
// besides the main one, because Redisson gives the objects "x" and "{x}" the same ones: two Fair locks would share
// their waiters. The channels that the two share are no reason, because a message there only says to ask.
func CheckPair(key string) error {
	if isPair(key) {
		return fmt.Errorf("%w: %.64q is one pair of braces, and in Redisson's layout an object of this kind has keys that "+
			"are those of %.64q, too", errs.ErrInvalidName, key, key[1:len(key)-1])
	}
	return nil
}

// isPair reports whether n is text without braces, in one pair of braces.
func isPair(n string) bool {
	return len(n) > 2 && n[0] == '{' && strings.IndexAny(n[1:], "{}") == len(n)-2 && n[len(n)-1] == '}'
}

// apart follows a name that is one pair of braces, in keys of this library's own.
const apart = "{}"

// Own returns the name that n has in keys of this library's own: "{x}{}" for "{x}", and n for every other name. No
// object has the name "{x}{}", and both have one slot, so no key of "{x}" that is ours is a key of "x", nor of anything
// else. A form without a name of its own would not do: "redlatch_queue::{x}" is the queue of the lock ":{x}".
//
//	name   queue                   Redisson's channel
//	x      redlatch_queue:{x}      redisson_lock__channel:{x}
//	{x}    redlatch_queue:{x}{}    redisson_lock__channel:{x}
//	:{x}   redlatch_queue::{x}     redisson_lock__channel::{x}
//
// Prefix and Suffix apply it to all keys but Redisson's.
func Own(n string) string {
	if isPair(n) {
		return n + apart
	}
	return n
}

// Prefix returns the key of the object n that begins with p, by Redisson's prefixName: "p:{n}", or "p:n" if n has
// braces of its own. If p is not Redisson's, n is as in [Own].
func Prefix(p, n string) string {
	if !strings.HasPrefix(p, "redisson_") {
		n = Own(n)
	}
	if strings.IndexByte(n, '{') >= 0 {
		return p + ":" + n
	}
	return p + ":{" + n + "}"
}

// Suffix returns the key of the object n that ends with s, by Redisson's suffixName: "{n}:s", or "n:s" if n has braces
// of its own. If s is not Redisson's, n is as in [Own].
func Suffix(n, s string) string {
	if s != "timeout" && !strings.Contains(s, reader) {
		n = Own(n)
	}
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
