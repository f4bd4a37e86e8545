package rsemaphore

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wait"
)

// tenantBit marks the base of a tenant's permits, in the first byte of its number. Scripts look up the tenant of a
// permit only if its id has the mark (lib/tenants.lua).
const tenantBit = 0x40

const (
	maxTenantWeight = 1000
	maxPriority     = 9
)

// share is how the calls of a tenant share a semaphore with others.
type share struct {
	tenant           string
	weight, priority int
	most             int // 0: no maximum
}

// entry returns the mode of a waiter's entry, and the part of the entry that has the share.
func (h *share) entry() (mode wait.EntryMode, text string) {
	if h == nil {
		return wait.EntryPermits, ""
	}
	return wait.EntryShare, fmt.Sprintf("%d %d %d %d %s", h.weight, h.most, h.priority, len(h.tenant), h.tenant)
}

// flow returns the tenant; "": none.
func (h *share) flow() string {
	if h == nil {
		return ""
	}
	return h.tenant
}

// mostOf returns the largest number of permits in a call, which is limit without a maximum.
func (h *share) mostOf(limit int) int {
	if h != nil && h.most > 0 {
		return min(h.most, limit)
	}
	return limit
}

// For returns the same semaphore for the calls of a tenant: a customer, a queue, a kind of job. Waiting calls are then
// served by shares, and not first come, first served over all calls: a free permit goes to the tenant that has received
// least for its weight since it began to wait. So one tenant with a thousand waiting calls delays another tenant's
// first call by about the time of one permit. Calls of one tenant are served first come, first served. Calls of the
// semaphore without For are one tenant, too, of weight 1. Shares count only while calls wait: an idle tenant saves
// nothing up, and its share goes to the others.
//
// A tenant has 1 to 256 bytes of UTF-8. It exists for as long as it waits or holds permits, so there may be any number,
// at the same cost for each call. Inspect shows the tenants. Events and metrics do not name them.
func (s *Semaphore) For(tenant string) *Semaphore {
	changed := *s
	changed.share = &share{tenant: tenant, weight: 1}
	changed.refuse(session.CheckLabel("tenant", tenant))
	if tenant == "" {
		changed.refuse(errs.InvalidOption("tenant", `""`, "1 to 256 bytes"))
	}
	return &changed
}

// WithWeight returns the same semaphore with a weight of its tenant, 1 to 1,000; the default is 1. Tenants that always
// have waiting calls get permits in proportion to their weights. If calls of one tenant bring different weights, each
// permit counts by the weight of its own call.
func (s *Semaphore) WithWeight(weight int) *Semaphore {
	return s.withShare(func(own *share) { own.weight = weight },
		session.CheckNumber("weight", int64(weight), 1, maxTenantWeight))
}

// WithMax returns the same semaphore with a maximum of the permits that its tenant holds at a time, in all processes.
// While the tenant holds that many, its calls wait, and others are served before them. The maximum is 1 to the
// capacity, and at least the n of each call. Give all calls of a tenant the same maximum: permits that were acquired
// without one do not count. A semaphore that is Shared has no maximum (ErrInvalidOption), because Java gives back
// permits without a word about their tenant.
func (s *Semaphore) WithMax(most int) *Semaphore {
	return s.withShare(func(own *share) { own.most = most },
		session.CheckNumber("max", int64(most), 1, s.store.maxCapacity))
}

// WithPriority returns the same semaphore with a priority of its calls, 0 to 9; the default is 0. Calls with a priority
// go before others, of other tenants and of their own, but a priority ages: it is a head start of as many times the
// capacity in permits. When the tenant is ahead of its share by that much, shares decide again. So a priority makes a
// rare call fast, and starves nobody; for more permits in the long run, raise the weight.
func (s *Semaphore) WithPriority(priority int) *Semaphore {
	return s.withShare(func(own *share) { own.priority = priority },
		session.CheckNumber("priority", int64(priority), 0, maxPriority))
}

// withShare returns the same semaphore with another share. bad refuses the change.
func (s *Semaphore) withShare(change func(*share), bad error) *Semaphore {
	changed, own := *s, share{}
	changed.refuse(bad)
	if s.share == nil {
		changed.refuse(fmt.Errorf("%q: %w: a weight, maximum or priority needs a tenant: call For first", s.name,
			errs.ErrInvalidOption))
	} else {
		own = *s.share
	}
	change(&own)
	changed.share = &own
	changed.checkMax()
	return &changed
}

// checkMax refuses a maximum of a tenant of a semaphore that is Shared.
func (s *Semaphore) checkMax() {
	if s.share != nil && s.share.most > 0 && s.interop {
		s.refuse(fmt.Errorf("%q: %w: a Shared semaphore cannot have a maximum of a tenant", s.name, errs.ErrInvalidOption))
	}
}

// Tenant is what a tenant of a semaphore has at one moment: see [Semaphore.For].
type Tenant struct {
	Held    int // permits
	Waiting int // calls in the server's queue
}

// addTenant adds what a tenant has.
func (s *SemaphoreState) addTenant(name string, more Tenant) {
	if s.Tenants == nil {
		s.Tenants = map[string]Tenant{}
	}
	all := s.Tenants[name]
	s.Tenants[name] = Tenant{Held: all.Held + more.Held, Waiting: all.Waiting + more.Waiting}
}
