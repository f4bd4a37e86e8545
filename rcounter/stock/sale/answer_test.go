package sale_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock/sale"
)

func TestRefund_EachState_IsEmptyUnlessDecided(t *testing.T) {
	t.Parallel()
	red, blue := sale.Line{Item: "red", N: 3}, sale.Line{Item: "blue", N: 1}
	sold := []sale.Line{{Item: "red", N: 2, Ordinal: 7}, {Item: "blue", Ordinal: 0}}
	is := sale.Answer{State: sale.Sold, Lines: sold}
	one, other := sale.Line{Item: "red", N: 1}, sale.Line{Item: "x", N: 1}
	for name, row := range map[string]struct {
		answer sale.Answer
		paid   []sale.Line
		want   []sale.Line
	}{
		"zero":              {sale.Answer{}, []sale.Line{red}, nil},
		"beside ErrLater":   {sale.Answer{Why: sale.Paused}, []sale.Line{red}, nil},
		"refused":           {sale.Answer{State: sale.Refused, Why: sale.SoldOut}, []sale.Line{red}, nil},
		"reserved":          {sale.Answer{State: sale.Reserved, Lines: sold}, []sale.Line{red}, nil},
		"lapsed":            {sale.Answer{State: sale.Lapsed, Lines: sold}, []sale.Line{red}, nil},
		"closed":            {sale.Answer{State: sale.Closed, Lines: sold}, []sale.Line{red, blue}, []sale.Line{red, blue}},
		"sold, nothing":     {is, nil, nil},
		"sold, all of it":   {is, []sale.Line{{Item: "red", N: 2}}, nil},
		"sold, a part":      {is, []sale.Line{red, blue}, []sale.Line{one, blue}},
		"sold, paid twice":  {is, []sale.Line{red, red}, []sale.Line{one, red}},
		"sold, other item":  {is, []sale.Line{other}, []sale.Line{other}},
		"sold, less a unit": {is, []sale.Line{{Item: "red", N: 1}}, nil},
	} {
		require.Equal(t, row.want, row.answer.Refund(row.paid...), name)
	}
}

func TestOrder_Unusable_IsRefusedUnsent(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	recording := &rig.Recording{Client: raw}
	s := on(t, recording, exact).Sale("s")
	seventeen := make([]sale.Line, 17)
	for i := range seventeen {
		seventeen[i] = sale.Line{Item: strings.Repeat("i", i+1), N: 1}
	}
	for name, row := range map[string]struct {
		order sale.Order
		want  error
	}{
		"nobody":            {sale.Order{}, errs.ErrInvalidName},
		"lines of nobody":   {sale.Order{Lines: []sale.Line{{N: 1}}, New: true}, errs.ErrInvalidName},
		"id of anyone":      {sale.Order{ID: "~x"}, errs.ErrInvalidName},
		"user of anyone":    {sale.Order{Anyone: true, User: "ann"}, errs.ErrInvalidName},
		"zero byte":         {sale.Order{ID: "\x00,ann"}, errs.ErrInvalidName},
		"zero byte in user": {sale.Order{ID: "x", User: "a\x00"}, errs.ErrInvalidName},
		"no lines":          {sale.Order{ID: "x", Lines: []sale.Line{}}, errs.ErrInvalidOption},
		"no units":          {sale.Order{ID: "x", Lines: []sale.Line{{}}}, errs.ErrInvalidOption},
		"too many units":    {sale.Order{ID: "x", Lines: []sale.Line{{N: 1 << 53}}}, errs.ErrInvalidOption},
		"item twice":        {sale.Order{ID: "x", Lines: []sale.Line{{N: 1}, {N: 2}}}, errs.ErrInvalidOption},
		"item with a sign":  {sale.Order{ID: "x", Lines: []sale.Line{{Item: "a|b", N: 1}}}, errs.ErrInvalidName},
		"lines of anyone":   {sale.Order{Anyone: true, Lines: seventeen[:2]}, errs.ErrInvalidOption},
		"17 lines":          {sale.Order{ID: "x", Lines: seventeen}, errs.ErrInvalidOption},
	} {
		a, err := s.Buy(ctx, row.order)
		require.ErrorIs(t, err, row.want, name)
		require.Zero(t, a, name)
	}
	_, err := s.Reserve(ctx, sale.Order{Anyone: true}, time.Hour)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	_, err = s.Reserve(ctx, sale.Order{ID: "x"}, 0)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	_, err = s.Pay(ctx, "")
	require.ErrorIs(t, err, errs.ErrInvalidName)
	_, err = s.Return(ctx, "~call")
	require.ErrorIs(t, err, errs.ErrInvalidName)
	for name, spec := range map[string]sale.Spec{
		"no limit": {OpenFor: time.Hour}, "no end": {Limit: 1},
		"both":             {Limit: 1, Items: map[string]sale.Item{"a": {Limit: 1}}, OpenFor: 1},
		"item of no units": {Items: map[string]sale.Item{"a": {}}, OpenFor: time.Hour},
		"too long":         {Limit: 1, OpenFor: 1<<63 - 1},
	} {
		require.ErrorIs(t, s.Open(ctx, spec), errs.ErrInvalidOption, name)
	}
	require.ErrorIs(t, s.Change(ctx, sale.Change{}), errs.ErrInvalidOption)
	_, err = s.Restore(ctx, spec(1))
	require.ErrorIs(t, err, errs.ErrInvalidOption, "no book")
	require.Empty(t, recording.Sent)
}
