package stock

import (
	"context"

	"github.com/redlatch/redlatch/internal/script"
)

// EndSale ends the sale for good: no more grants. Until the retention that Open set is over, the answers stay readable,
// units can be returned, and the name cannot be opened again. It is not an error if the stock is closed already or is
// not there. Two round trips, repeated until answered. A copy that the network delivers late does not close another
// opening.
func (s *Stock) EndSale(ctx context.Context) (err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return err
	}
	return s.close(ctx, "end")
}

// Delete removes the stock with all that it knows, whatever its state: who has units, reservations, remembered
// requests, and the entries of its ledger that were not moved yet. Claims are answered NotOpen then, and the name can
// be opened again at once. It is for a stock that was opened wrongly, or whose records are of no use any more; a sale
// is ended by EndSale.
//
// It is not an error if there is no stock. A stock whose hash was lost, which is ErrCorrupt for other calls, is removed
// as well. The server frees the records in the background. Two round trips, repeated until answered. A copy that the
// network delivers late removes no other opening. Not promised: that a call which was made for the deleted stock, and
// is repeated afterwards, is known to be one. If the name was opened again, it is a new request there.
func (s *Stock) Delete(ctx context.Context) (err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return err
	}
	return s.close(ctx, "delete")
}

var closeScript = script.Load("close", files, "close")

// close runs close.lua, for an "end" or a "delete".
func (s *Stock) close(ctx context.Context, what string) error {
	for epoch := ""; ; {
		v, err := s.ints(ctx, 3, closeScript, epoch, what)
		if err != nil {
			return err
		}
		if v[0] == stockNone || v[2] == 1 {
			s.processState().cache.forget()
			return nil
		}
		epoch = decimal(v[1])
	}
}
