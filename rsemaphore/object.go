package rsemaphore

// object is the part that latches and barriers share: one name.
type object struct {
	c                  *Client
	name, key, channel string
	bad                error // the error of every call
}

// object returns the object of that name. It has no channel yet.
func (c *Client) object(name string) object {
	key, bad := c.session.Key(name)
	return object{c: c, name: name, key: key, bad: bad}
}
