package redistest

import "strings"

// Frame returns the first RESP value of b, nil if it is not complete yet, and whether it is a message to a subscriber:
// one that answers no call, and that may be lost without the calls on that connection losing step.
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
