package stock

import (
	"context"

	"github.com/redlatch/redlatch/internal/script"
)

// Close ends the sale for good: no more grants. Until the retention that Open set is over, the answers stay readable, units can be
// returned, and the name cannot be opened again. It is no error if the stock is closed already or is not there. Two round trips,
// repeated until answered. A copy that the network delivers late does not close another opening.
func (s *Stock) Close(ctx context.Context) (err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return err
	}
	return s.close(ctx)
}

var closeScript = script.Load("close", files, "close")

// close runs close.lua.
func (s *Stock) close(ctx context.Context) error {
	for epoch := ""; ; {
		v, err := s.ints(ctx, 3, closeScript, epoch)
		if err != nil {
			return err
		}
		if v[0] == stockNone || v[2] == 1 {
			s.shared().cache.forget()
			return nil
		}
		epoch = decimal(v[1])
	}
}
