package rsemaphore

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
)

// object is what semaphores, latches and barriers have in common: one name.
type object struct {
	c                  *Client
	name, key, channel string
	bad                error // what every call returns
}

// object is the one of that name. It has no channel yet.
func (c *Client) object(name string) object {
	key, bad := c.session.Key(name)
	return object{c: c, name: name, key: key, bad: bad}
}

// refuse has every call return err, unless one returns something else already.
func (o *object) refuse(err error) {
	if o.bad == nil {
		o.bad = o.c.session.Error(err)
	}
}

// checkRange refuses a number that is out of its bounds.
func checkRange(field string, n, least, most int64) error {
	if n < least || n > most {
		return errs.InvalidOption(field, n, fmt.Sprintf("%d to %d", least, most))
	}
	return nil
}

// checkTTL refuses the TTL of a counting semaphore or a latch.
func checkTTL(ttl time.Duration) error {
	if ttl != 0 && (ttl < time.Millisecond || ttl > session.MaxDuration) {
		return errs.InvalidOption("ttl", ttl, "0 (no end) or 1ms to "+session.MaxDuration.String())
	}
	return nil
}
