package redlatchprom

import (
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/measure"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Instrument returns o with the Collector's Observers in every package, after those that o has already.
func (c *Collector) Instrument(o redlatch.Options) redlatch.Options { return c.observers.Instrument(o) }

// Locks returns the Observer for rlock.Options. It and the next six are for programs that use the packages alone; for
// others Instrument does.
func (c *Collector) Locks() rlock.Observer { return c.observers.Locks(measure.Lock) }

// Semaphores returns the Observer for rsemaphore.Options.
func (c *Collector) Semaphores() rsemaphore.Observer { return c.observers.Semaphores() }

// Counters returns the Observer for rcounter.Options.
func (c *Collector) Counters() rcounter.Observer { return c.observers.Counters() }

// Stocks returns the Observer for stock.Options.
func (c *Collector) Stocks() stock.Observer { return c.observers.Stocks() }

// RedPackets returns the Observer for redpacket.Options.
func (c *Collector) RedPackets() redpacket.Observer { return c.observers.RedPackets() }

// Limiters returns the Observer for ratelimit.Options.
func (c *Collector) Limiters() ratelimit.Observer { return c.observers.Limiters() }

// Hub returns the Observer for pubsub.Options.
func (c *Collector) Hub() pubsub.Observer { return c.observers.Hub() }
