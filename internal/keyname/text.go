package keyname

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/errs"
)

// MaxText is the longest accepted text for a thing within an object, in bytes: a claimant, an id, the key of a limit.
const MaxText = 1024

// Required is Text for a text that must not be empty.
func Required(what, text string) error {
	if text == "" {
		return fmt.Errorf("%w: the %s is empty", errs.ErrInvalidName, what)
	}
	return Text(what, text)
}

// Text checks a text that becomes part of a key or a record. It refuses texts that a database or JSON cannot hold as
// they are. PostgreSQL takes no NUL byte, so one such entry would block a ledger for good.
func Text(what, text string) error {
	switch {
	case len(text) > MaxText:
		return fmt.Errorf("%w: %s %.32q… has %d bytes, more than %d", errs.ErrInvalidName, what, text, len(text), MaxText)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: %s %.64q is not valid UTF-8", errs.ErrInvalidName, what, text)
	case strings.IndexByte(text, 0) >= 0:
		return fmt.Errorf("%w: %s %.64q has a NUL byte", errs.ErrInvalidName, what, text)
	}
	return nil
}

// Braced returns the prefix of the keys of an object that has several: rc:{full}, where full is prefix and name. A name
// cannot have braces of its own: the keys are held together by the braces of the prefix. The error names the kind of
// object, what.
func Braced(prefix, name, what string) (key string, err error) {
	switch full := prefix + name; {
	case name == "":
		return "", Check(name)
	case strings.ContainsAny(full, "{}"):
		return "", fmt.Errorf("%w: %.64q has braces; the keys of %s are held together by braces of their own",
			errs.ErrInvalidName, full, what)
	default:
		return Prefix("rc", full), Check(full)
	}
}
