package accessor

import "time"

// Limits is what the debug page asks a client of rate limits.
type Limits interface {
	// Refused returns what the server refused lately of limiters whose names or keys match, the newest first.
	Refused(match func(name string) bool) []Refused
	// Answering returns the limiters that have a policy answer in place of the server.
	Answering() []Answering
}

// Refused is a limit that had too few units left for a request.
type Refused struct {
	Limiter   any // a *ratelimit.Limiter
	Name, Key string
	Algorithm string
	Burst     int64     // the most that can pass at once
	N         int64     // units that were refused
	At        time.Time // when that was asked
	Passes    time.Time // when so many, or of AllowAtMost one, could pass if no other request came
}

// Answering is a limiter whose policy answered last at a time.
type Answering struct {
	Name, Policy string
	Last         time.Time
}
