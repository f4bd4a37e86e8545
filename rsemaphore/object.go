package rsemaphore

// object is what latches and barriers have in common: one name.
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
