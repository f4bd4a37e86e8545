package stock

import (
	"cmp"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
)

// checkRequest refuses the arguments of a request or reservation.
func checkRequest(id, claimant string, n int64) error {
	return cmp.Or(keyname.Required("id", id), keyname.Required("claimant", claimant), checkN("N", n))
}

// checkN refuses a number of units.
func checkN(what string, n int64) error {
	if n < 1 || n > maxLimit {
		return errs.InvalidOption(what, n, fmt.Sprintf("between 1 and %d", int64(maxLimit)))
	}
	return nil
}

func checkTTL(ttl time.Duration) error {
	if ttl < minReservation || ttl > maxLifetime {
		return errs.InvalidOption("ttl", ttl, fmt.Sprintf("between %v and %v", minReservation, maxLifetime))
	}
	return nil
}
