package rcounter

import (
	"context"
	_ "embed"
)

// Close ends the sale for good: no more grants. The answers given stay readable, and units can be returned, until the
// retention that Open set is over, and until then the name cannot be opened again. A stock that is closed already, or
// is not there, is no error. One round trip, repeated until answered.
func (s *Stock) Close(ctx context.Context) (err error) {
	defer edge(&err)
	if err := s.c.usable(s.refused); err != nil {
		return err
	}
	return s.close(ctx)
}

//go:embed close.lua
var closeSource string

var closeScript = stockScript("close", closeSource)

// close runs close.lua.
func (s *Stock) close(ctx context.Context) error {
	_, err := s.c.do(ctx, s.call(closeScript))
	if err == nil {
		s.desk().memory.forget()
	}
	return err
}
