package lease

import "errors"

var (
	errNoSlot   = errors.New("too many renewals under way")
	errBadReply = errors.New("renewal: reply of unexpected length")
	errKey      = errors.New("renewal: the server reports an error on this key")
)
