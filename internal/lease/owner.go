package lease

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// NewConnectionID is the first half of every owner of a client: a UUID of version 8 (RFC 9562), as text and as it is.
// Redisson's are of version 4, so a script can tell which holders are ours. 12 bits say for how long the client is
// trusted without a heartbeat (see Heartbeats; 0: it has none), the other 110 are random.
func NewConnectionID(trust time.Duration) (text string, id [16]byte) {
	rand.Read(id[:]) // never fails
	units := uint16(trust / trustUnit)
	id[6], id[7] = 0x80|byte(units>>8), byte(units)
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), id
}

const (
	trustUnit = 10 * time.Millisecond
	// MaxTrust is the longest trust that a connection id can say.
	MaxTrust = 0xfff * trustUnit
)

// ours is the whole shape of an owner. Less would not do: other programs have locks of their own on some keys, whose
// holders are any text, and who is ours may be taken from when its heartbeat is not found.
var ours = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:[0-9]+(:[^!{}]*)?$`)

// Ours reports whether owner is one of this library, "<connectionID>:<n>", with a label or without.
func Ours(owner string) bool { return ours.MatchString(owner) }

// TrustIn is for how long the connection id of an owner says that it is trusted without a heartbeat: 0 if it has none, or
// is not ours.
func TrustIn(owner string) time.Duration {
	if !Ours(owner) {
		return 0
	}
	units, _ := strconv.ParseUint(owner[15:18], 16, 16)
	return time.Duration(units) * trustUnit
}
