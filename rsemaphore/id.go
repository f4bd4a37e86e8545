package rsemaphore

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/redlatch/redlatch/internal/errs"
)

// idSize is the length of a permit's id on the server: Redisson's, whose ids are random. Ours are a client's first
// eight bytes, by which Inspect tells whose they are, and a number.
const idSize = 16

// baseSize is how much of them the ids have in common that are acquired together. The rest is their number: see
// lib/ids.lua.
const baseSize = 13

// newOwner returns an owner of n permits, or of one record of that weight. Its base was never used: the client's eight
// bytes, and the last five of a number, with a mark if they are not renewed.
func (c *Client) newOwner(n int, renewed bool) string {
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], c.bases.Add(1))
	if !renewed {
		number[3] |= leased
	}
	var room [baseSize + 20]byte
	text := append(append(room[:0], c.seed[:]...), number[3:]...)
	return string(strconv.AppendInt(text, int64(n), 10))
}

// idOf is id i of a base, from 0.
func idOf(base string, i int) string {
	return base + string([]byte{byte(i >> 16), byte(i >> 8), byte(i)})
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
	if len(ids) < 1 || len(ids) > maxIDs {
		return nil, fmt.Errorf("rsemaphore: %w",
			errs.InvalidOption("number of ids", len(ids), fmt.Sprintf("1 to %d", maxIDs)))
	}
	raw := make([]string, len(ids))
	for i, id := range ids {
		b, err := hex.DecodeString(id)
		if err != nil || len(b) != idSize {
			return nil, fmt.Errorf("rsemaphore: %w: id is %.64q, must be %d hexadecimal digits", errs.ErrInvalidOption, id,
				2*idSize)
		}
		raw[i] = string(b)
	}
	sorted := slices.Sorted(slices.Values(raw))
	if n := len(slices.Compact(sorted)); n < len(raw) {
		return nil, fmt.Errorf("rsemaphore: %w",
			errs.InvalidOption("number of different ids", n, fmt.Sprintf("%d: none may be given twice", len(raw))))
	}
	return raw, nil
}
