package redlatchdebug

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// millis is a duration: milliseconds in JSON, and to people what they can read.
type millis time.Duration

func since(t time.Time) millis { return millis(time.Since(t)) }
func until(t time.Time) millis { return millis(time.Until(t)) }
func some(d millis) *millis    { return &d }

// MarshalJSON implements json.Marshaler.
func (d millis) MarshalJSON() ([]byte, error) {
	ms := math.Round(float64(d)/float64(time.Microsecond)) / 1000
	return strconv.AppendFloat(nil, ms, 'f', -1, 64), nil
}

// String is for people.
func (d millis) String() string {
	t := time.Duration(d)
	if t < 0 {
		return "over"
	}
	const day = 24 * time.Hour
	switch {
	case t < time.Millisecond:
		return fmt.Sprintf("%d µs", t.Microseconds())
	case t < time.Second:
		return fmt.Sprintf("%d ms", t.Milliseconds())
	case t < time.Minute:
		return strconv.FormatFloat(t.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	case t < time.Hour && t%time.Minute < time.Second:
		return fmt.Sprintf("%d min", t/time.Minute)
	case t < time.Hour:
		return fmt.Sprintf("%d min %d s", t/time.Minute, t%time.Minute/time.Second)
	case t < 2*day:
		return fmt.Sprintf("%d h %d min", t/time.Hour, t%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %d h", t/day, t%day/time.Hour)
}
