//go:build unix

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// century is the longest time that the library takes.
const century = 100 * 365 * 24 * time.Hour

// bounded is the value of a flag that has bounds. pflag names the flag in the error.
type bounded[T int | time.Duration] struct {
	to          *T
	least, most T
	parse       func(text string) (T, error)
	kind        string
}

// within is a duration with bounds.
func within(to *time.Duration, least, most time.Duration) pflag.Value {
	return bounded[time.Duration]{to, least, most, time.ParseDuration, "duration"}
}

// between is a number with bounds.
func between(to *int, least, most int) pflag.Value {
	return bounded[int]{to, least, most, strconv.Atoi, "int"}
}

func (b bounded[T]) Set(text string) error {
	v, err := b.parse(text)
	switch {
	case err != nil:
		return err
	case v < b.least || v > b.most:
		return fmt.Errorf("must be from %v to %v", b.least, b.most)
	}
	*b.to = v
	return nil
}

func (b bounded[T]) String() string {
	if b.to == nil || *b.to == 0 {
		return "0" // which help leaves out
	}
	return fmt.Sprint(*b.to)
}

func (b bounded[T]) Type() string { return b.kind }

// choice is the value of a flag that is one of some words, in whatever case it is typed.
type choice[T ~string] struct {
	to    *T
	words []string
}

func (c choice[T]) Set(text string) error {
	i := slices.IndexFunc(c.words, func(w string) bool { return strings.EqualFold(w, text) })
	if i < 0 {
		return fmt.Errorf("%q must be one of %s", text, strings.Join(c.words, ", "))
	}
	*c.to = T(c.words[i])
	return nil
}

func (c choice[T]) String() string {
	if c.to == nil {
		return ""
	}
	return string(*c.to)
}

func (c choice[T]) Type() string { return "string" }
