package redlatchhttp

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"unicode/utf8"
)

// longestKey is the longest text of a client that is a key as it is.
const longestKey = 128

// ByIP is the address of the client's end of the connection: of IPv6 its first 64 bits, because a client has as many
// addresses as it likes behind those. Behind a proxy that is the proxy's: there use what the proxy says, by a Key of
// your own, and only if no client can say it itself.
func ByIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return plain(host)
	}
	if a = a.Unmap().WithZone(""); a.Is6() {
		return netip.PrefixFrom(a, 64).Masked().String()
	}
	return a.String()
}

// without is the key of requests without a header field. The empty key would be in a slot of its own for each limiter,
// and several limits could not be asked in one step in a Cluster.
const without = "(none)"

// ByHeader is the value of a header field, such as that of an API key. Requests without it share the limit of the key
// "(none)". A value that is longer than 128 bytes, or no plain text, stands for itself by its SHA-256: what clients
// send is never refused, and never chooses where in a Cluster its limit is.
func ByHeader(field string) func(r *http.Request) string {
	return func(r *http.Request) string { return cmp.Or(plain(r.Header.Get(field)), without) }
}

// plain is text that can be a key.
func plain(text string) string {
	if len(text) <= longestKey && utf8.ValidString(text) && !strings.ContainsAny(text, "{}\x00") {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}
