package rsemaphore

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/redlatch/redlatch/internal/errs"
)

// idSize is the length of a permit's id on the server. Redisson's ids are random. Our ids are the first eight bytes of
// the client's connection id, by which Inspect names the client, and a number.
const idSize = 16

// baseSize is the length of the part that the ids of one acquisition share. The rest is their number: see lib/ids.lua.
const baseSize = 13

// newOwner returns an owner of that many permits, or of one record of that weight. Its base was never used before: the
// client's eight bytes, and the last five of a number, with a mark if the permits are not renewed.
func (c *Client) newOwner(permits int, renewed bool) string {
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], c.lastBase.Add(1))
	if !renewed {
		number[3] |= fixedLeaseBit
	}
	var room [baseSize + 20]byte
	text := append(append(room[:0], c.seed[:]...), number[3:]...)
	return string(strconv.AppendInt(text, int64(permits), 10))
}

// idOf returns the id with that index, from 0.
func idOf(base string, index int) string {
	return base + string([]byte{byte(index >> 16), byte(index >> 8), byte(index)})
}

// idText returns the public form of an id, which Redisson takes, too.
func idText(raw string) string { return hex.EncodeToString([]byte(raw)) }

// idClient returns the beginning of the connection id in one of our ids. One of Redisson's ids in sixteen looks like
// ours by chance; then the result is a client that does not exist.
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
	for index, id := range ids {
		decoded, err := hex.DecodeString(id)
		if err != nil || len(decoded) != idSize {
			return nil, fmt.Errorf("rsemaphore: %w: id is %.64q, must be %d hexadecimal digits", errs.ErrInvalidOption, id,
				2*idSize)
		}
		raw[index] = string(decoded)
	}
	sorted := slices.Sorted(slices.Values(raw))
	if permits := len(slices.Compact(sorted)); permits < len(raw) {
		return nil, fmt.Errorf("rsemaphore: %w",
			errs.InvalidOption("number of different ids", permits, fmt.Sprintf("%d: none may be given twice", len(raw))))
	}
	return raw, nil
}
