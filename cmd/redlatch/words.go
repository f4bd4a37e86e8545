//go:build unix

package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// fromLibrary are the names of packages before the errors of the library.
var fromLibrary = regexp.MustCompile(
	`(^|: |\n)(pubsub|redlatch|rlock|election|rsemaphore|rcounter|stock|redpacket|ratelimit): `)

// inTerms says with flags and variables what the library says with fields of its options.
var inTerms = strings.NewReplacer(
	"no TLS with this server: see TLSConfig",
	"no TLS with this server: --tls-ca names a file with the certificates that sign the server's",
	"Sentinel.TLSConfig is nil, and", "--redis must begin with rediss://:",
	"Sentinel.TLSConfig is set, and", "--redis must begin with redis://:",
	"TLSConfig is nil, and", "--redis must begin with rediss://:",
	"TLSConfig is set, and", "--redis must begin with redis://:",
	"see Username and Password", "see REDLATCH_USERNAME and REDLATCH_PASSWORD",
	"Password is set, and", "a password is given, and",
	"see SelectDB", "it is the path of --redis",
	"the server refuses these options", "the server refuses what --redis says",
	"InitAddress is", "--redis is",
	"Sentinel.MasterSet the name", "?master_set= with the name",
	"KeyPrefix is", "--prefix is",
	"WatchdogTimeout is", "--ttl is",
	"CallTimeout is", "--call-timeout is",
)

// words is what an error says, in the terms of this command.
func words(err error) string {
	return fromLibrary.ReplaceAllString(inTerms.Replace(err.Error()), "$1")
}

// The most that a word and a message of this command have, in bytes: names and values may have 64 KiB.
const (
	longWord    = 200
	longMessage = 2000
)

var tooLong = regexp.MustCompile(`\S{201,}`)

// short is a message without what would fill screens.
func short(text string) string {
	text = tooLong.ReplaceAllStringFunc(text, func(word string) string { return head(word, longWord/2) + "…" })
	if len(text) > longMessage {
		text = head(text, longMessage) + "…"
	}
	return text
}

// head is the beginning of a text, without half a character.
func head(text string, n int) string {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
