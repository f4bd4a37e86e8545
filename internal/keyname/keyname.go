// Package keyname builds and checks the names of keys and channels by Redisson's rules, so that Java and Go processes
// use the same names.
package keyname

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/errs"
)

// MaxLen is the longest accepted key, in bytes. Redis takes far more; a name this long is a bug in the caller.
const MaxLen = 64 << 10

// Check returns nil if key can be the main key of an object, and otherwise an error that wraps errs.ErrInvalidName and
// names the reason.
//
// A name must be text that other programs can keep, too: logs, labels of metrics, columns of a database. PostgreSQL,
// for example, takes no NUL byte.
//
// Redisson wraps a name in braces only if it contains no '{'. So three shapes put the derived keys of one object into
// another Cluster slot than its main key, where every script on both fails: an opening brace that is never closed, an
// empty pair that comes first, and a closing brace in a name without an opening one (the derived {a}b} hashes as "a").
//
// A key that belongs to another object, besides that object's main key ([Derived], [Endings]), is refused: while a lock
// named "redlatch_queue:{x}" is held, the queue of the lock "x" would be of another type.
func Check(key string) error {
	if reason := ownerReason(key); reason != "" {
		return fmt.Errorf("%w: %.64q %s, so it is a key that another object has besides its own", errs.ErrInvalidName, key,
			reason)
	}
	return Shape(key)
}

// Shape is Check without the test for keys of other objects. It refuses "{x}{}", too: see [Own].
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
	brace := strings.IndexByte(key, '{')
	if brace < 0 {
		if strings.IndexByte(key, '}') >= 0 {
			return fmt.Errorf("%w: %.64q has a '}' and no '{', which splits it over Cluster slots", errs.ErrInvalidName, key)
		}
		return nil
	}
	switch strings.IndexByte(key[brace:], '}') {
	case -1:
		return fmt.Errorf("%w: %.64q has a '{' that is never closed, which splits it over Cluster slots",
			errs.ErrInvalidName, key)
	case 1:
		return fmt.Errorf("%w: %.64q starts with an empty {}, which splits it over Cluster slots", errs.ErrInvalidName, key)
	}
	if name, ok := strings.CutSuffix(key, pairMark); ok && isBracePair(name) {
		return fmt.Errorf("%w: %.64q stands for %.64q in the other keys of that object", errs.ErrInvalidName, key, name)
	}
	return nil
}

// CheckPair refuses a key that is one pair of braces, as "{x}". It is for kinds with more keys in Redisson's layout
// than the main key. Redisson gives the objects "x" and "{x}" the same derived keys, so two Fair locks would share
// their waiters. Shared channels do no harm, because a message there only makes a waiter send a request.
func CheckPair(key string) error {
	if isBracePair(key) {
		return fmt.Errorf("%w: %.64q is one pair of braces, and in Redisson's layout an object of this kind has keys that "+
			"are those of %.64q, too", errs.ErrInvalidName, key, key[1:len(key)-1])
	}
	return nil
}

// isBracePair reports whether name is text without braces, in one pair of braces.
func isBracePair(name string) bool {
	return len(name) > 2 && name[0] == '{' && strings.IndexAny(name[1:], "{}") == len(name)-2 && name[len(name)-1] == '}'
}

// pairMark follows a name that is one pair of braces, in this library's own keys.
const pairMark = "{}"

// Own returns the form of name in this library's own keys: "{x}{}" for "{x}", and the same name for every other name.
// No object has the name "{x}{}", and "{x}" and "{x}{}" have the same slot. So our keys of "{x}" are never keys of "x",
// nor of any other object. A form that is itself a valid name would not do: "redlatch_queue::{x}" is the queue of the
// lock ":{x}".
//
//	name   queue                   Redisson's channel
//	x      redlatch_queue:{x}      redisson_lock__channel:{x}
//	{x}    redlatch_queue:{x}{}    redisson_lock__channel:{x}
//	:{x}   redlatch_queue::{x}     redisson_lock__channel::{x}
//
// Prefix and Suffix apply Own to all keys but Redisson's.
func Own(name string) string {
	if isBracePair(name) {
		return name + pairMark
	}
	return name
}

// Prefix returns the key of the object name with a prefix, by Redisson's prefixName: "prefix:{name}", or "prefix:name"
// if name has braces. If the prefix is not Redisson's, name is taken through [Own].
func Prefix(prefix, name string) string {
	if !strings.HasPrefix(prefix, "redisson_") {
		name = Own(name)
	}
	if strings.IndexByte(name, '{') >= 0 {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// Suffix returns the key of the object name with a suffix, by Redisson's suffixName: "{name}:suffix", or "name:suffix"
// if name has braces. If the suffix is not Redisson's, name is taken through [Own].
func Suffix(name, suffix string) string {
	if suffix != "timeout" && !strings.Contains(suffix, readerTimeouts) {
		name = Own(name)
	}
	if strings.IndexByte(name, '{') >= 0 {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}

// Slot returns the Cluster hash slot of key: CRC16 (XMODEM) of its hash tag, or of the whole key, modulo 16384 (Redis
// Cluster specification, "Hash tags").
func Slot(key string) uint16 {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
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

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
