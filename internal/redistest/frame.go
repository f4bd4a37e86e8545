package redistest

import (
	"bytes"
	"strings"
)

// Frame returns the first RESP value of b, nil if the value is not complete yet, and whether the value is a message to
// a subscriber. Such a message is not the reply to a call, so it can be lost without mixing up the replies on that
// connection.
func Frame(b []byte) (frame []byte, message bool) {
	size := frameSize(b)
	if size < 0 {
		return nil, false
	}
	frame = b[:size]
	if frame[0] == '>' {
		switch strings.ToLower(firstWord(frame)) {
		case "message", "smessage", "pmessage":
			message = true
		}
	}
	return frame, message
}

// frameSize returns the length of the first RESP value in b, or -1 if the value is not complete.
func frameSize(b []byte) int {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 0 {
		return -1
	}
	at := end + 2
	if end == 0 {
		return at
	}
	line := b[1:end]
	children := 0
	switch b[0] {
	case '$', '!', '=':
		n := number(line)
		if n < 0 {
			return at
		}
		if len(b) < at+n+2 {
			return -1
		}
		return at + n + 2
	case '*', '~', '>':
		children = number(line)
	case '%':
		children = 2 * number(line)
	case '|': // attributes belong to the value behind them
		children = 2*number(line) + 1
	}
	for range children {
		n := frameSize(b[at:])
		if n < 0 {
			return -1
		}
		at += n
	}
	return at
}

func number(line []byte) int {
	n := 0
	for _, c := range line {
		if c < '0' || c > '9' {
			return -1 // null
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// firstWord returns the first element of an array or push, if that element is a string.
func firstWord(frame []byte) string {
	_, rest, ok := bytes.Cut(frame, []byte("\r\n"))
	if !ok || len(rest) == 0 {
		return ""
	}
	return text(rest)
}

func text(b []byte) string {
	head, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(head) == 0 {
		return ""
	}
	switch head[0] {
	case '$':
		if n := number(head[1:]); n >= 0 && n <= len(rest) {
			return string(rest[:n])
		}
	case '+':
		return string(head[1:])
	}
	return ""
}

// words returns the elements of an array of strings.
func words(frame []byte) []string {
	at := bytes.Index(frame, []byte("\r\n")) + 2
	var list []string
	for at < len(frame) {
		n := frameSize(frame[at:])
		if n < 0 {
			break
		}
		list = append(list, text(frame[at:at+n]))
		at += n
	}
	return list
}
