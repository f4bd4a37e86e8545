package session

import (
	"crypto/rand"
	"encoding/base64"
)

// CallID names one call, so that a second run of its script finds the work of the first. 48 random bits are enough,
// because an id is compared only with the few ids that the same claimant, or the same name, has used.
func CallID() string { return randomID(6) }

// RecordID names a record that has no other name. 96 random bits are needed, because all such ids of an opening must
// differ.
func RecordID() string { return randomID(12) }

func randomID(size int) string {
	bytes := make([]byte, size)
	rand.Read(bytes) // never fails
	return base64.RawURLEncoding.EncodeToString(bytes)
}
