package session

import (
	"crypto/rand"
	"encoding/base64"
)

// CallID names one call, so that a script which meets it a second time knows its own work. 48 random bits: it is
// only ever compared with the few that the same claimant, or the same name, has used.
func CallID() string { return random(6) }

// RecordID names a record that nobody asks for by another name: 96 random bits, since all those of an opening must
// differ.
func RecordID() string { return random(12) }

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}
