package lease

import (
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

var (
	errBadReply = errors.New("renewal: reply of unexpected length")
	errKey      = errors.New("renewal: the server reports an error on this key")
	errDenied   = fmt.Errorf("%w: renewal: the user may not read this key", errs.ErrDenied)
)
