package lease

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// NewConnectionID makes the first half of every owner of a client: a UUID of version 8 (RFC 9562), as text and in
// binary. Redisson's are of version 4, so a script can distinguish holders of this library. 12 bits are the time for
// which the client is trusted without a heartbeat (see Heartbeats; 0: without heartbeats). One bit, grouped, says
// whether each slot group has heartbeats of its own (see BeatKey). The other 109 are random.
func NewConnectionID(trust time.Duration, grouped bool) (text string, id [16]byte) {
	rand.Read(id[:]) // never fails
	if id[5] &^= 1; grouped {
		id[5] |= 1
	}
	units := uint16(trust / trustUnit)
	id[6], id[7] = 0x80|byte(units>>8), byte(units)
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), id
}

const (
	trustUnit = 10 * time.Millisecond
	// MaxTrust is the longest trust in a connection id.
	MaxTrust = 0xfff * trustUnit
)

// ours is the whole shape of an owner. Less would not do: on some keys other programs have locks whose holders are any
// text, and a lock is taken from an owner of this shape when its heartbeat is not found.
var ours = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:[0-9]+(:[^!{}]*)?$`)
})

// Ours reports whether owner is of this library: "<connectionID>:<n>", with a label or without.
func Ours(owner string) bool { return ours().MatchString(owner) }

// ClientIn returns the beginning of the connection id of an owner, by which clients are told apart; "" if the owner is
// not of this library.
func ClientIn(owner string) string {
	if !Ours(owner) {
		return ""
	}
	return owner[:ClientLength]
}

// ClientLength is the length of the beginning of a connection id that identifies a client.
const ClientLength = 18

// TrustIn returns for how long an owner is trusted without a heartbeat, as its connection id says: 0 without
// heartbeats, or if the owner is not of this library.
func TrustIn(owner string) time.Duration {
	if !Ours(owner) {
		return 0
	}
	units, _ := strconv.ParseUint(owner[15:18], 16, 16)
	return time.Duration(units) * trustUnit
}

// grouped reports the bit grouped of a connection id, or of its beginning.
func grouped(id string) bool { return len(id) > 12 && strings.IndexByte("13579bdf", id[12]) >= 0 }

// TrustInBytes is TrustIn of an id that begins with the bytes of a connection id, eight of them at least.
func TrustInBytes(id string) time.Duration {
	if len(id) < 8 || id[6]>>4 != 8 {
		return 0
	}
	return time.Duration(uint16(id[6]&0xf)<<8|uint16(id[7])) * trustUnit
}
