package keyname

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/errs"
)

// MaxText is the longest text accepted that names something within an object, in bytes: a claimant, an id, the key of a
// limit.
const MaxText = 1024

// Required is Text for a text that must not be empty.
func Required(what, text string) error {
	if text == "" {
		return fmt.Errorf("%w: the %s is empty", errs.ErrInvalidName, what)
	}
	return Text(what, text)
}

// Text checks a text that becomes part of a key or a record. A text that a database or JSON cannot hold as it is, is
// refused: PostgreSQL takes no NUL byte, so one such entry would block a ledger for good.
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

// Braced returns the prefix of the keys of an object that has several: rc:{full}, where full is prefix and name. what
// is the kind of object, for the error, which says why the name cannot be used. Names have no braces of their own: the
// keys are held together by those of the prefix.
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
