package rsemaphore

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/redlatch/redlatch/internal/errs"
)

// idSize is the length of a permit's id on the server: Redisson's, whose ids are random. Ours are a client's first
// eight bytes, by which Inspect tells whose they are, and eight random ones.
const idSize = 16

// newIDs returns n fresh ids in one string: the owner of a lease.
func (c *Client) newIDs(n int) string {
	b := make([]byte, n*idSize)
	rand.Read(b) // never fails
	for i := range n {
		copy(b[i*idSize:], c.seed[:])
	}
	return string(b)
}

// idText is the public form of an id, which Redisson takes too.
func idText(raw string) string { return hex.EncodeToString([]byte(raw)) }

// idClient is the client of one of our ids, as its ID begins. Bytes of Redisson's have the version of our connection
// ids one time in sixteen; then it is a client that does not exist.
func idClient(raw string) string {
	if len(raw) != idSize || raw[6]>>4 != 8 {
		return ""
	}
	return fmt.Sprintf("%x-%x-%x", raw[:4], raw[4:6], raw[6:8])
}

// parseIDs returns the raw ids.
func parseIDs(ids []string) ([]string, error) {
	if len(ids) < 1 || len(ids) > maxPerCall {
		return nil, fmt.Errorf("rsemaphore: %w", errs.InvalidOption("number of ids", len(ids), fmt.Sprintf("1 to %d", maxPerCall)))
	}
	raw := make([]string, len(ids))
	for i, id := range ids {
		b, err := hex.DecodeString(id)
		if err != nil || len(b) != idSize {
			return nil, fmt.Errorf("rsemaphore: %w: id is %.64q, must be %d hexadecimal digits", ErrInvalidOption, id, 2*idSize)
		}
		raw[i] = string(b)
	}
	sorted := slices.Sorted(slices.Values(raw))
	if n := len(slices.Compact(sorted)); n < len(raw) {
		return nil, fmt.Errorf("rsemaphore: %w", errs.InvalidOption("number of different ids", n, fmt.Sprintf("%d: none may be given twice", len(raw))))
	}
	return raw, nil
}
