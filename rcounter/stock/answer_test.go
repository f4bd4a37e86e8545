package stock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rcounter/stock"
)

func TestRefund_EachState_IsEmptyUnlessDecided(t *testing.T) {
	t.Parallel()
	red, blue := stock.Line{Item: "red", N: 3}, stock.Line{Item: "blue", N: 1}
	sold := []stock.Line{{Item: "red", N: 2, Ordinal: 7}, {Item: "blue", Ordinal: 0}}
	is := stock.Answer{State: stock.Sold, Lines: sold}
	one, other := stock.Line{Item: "red", N: 1}, stock.Line{Item: "x", N: 1}
	for name, row := range map[string]struct {
		answer stock.Answer
		paid   []stock.Line
		want   []stock.Line
	}{
		"zero":              {stock.Answer{}, []stock.Line{red}, nil},
		"beside ErrLater":   {stock.Answer{Why: stock.Paused}, []stock.Line{red}, nil},
		"refused":           {stock.Answer{State: stock.Refused, Why: stock.SoldOut}, []stock.Line{red}, nil},
		"reserved":          {stock.Answer{State: stock.Reserved, Lines: sold}, []stock.Line{red}, nil},
		"lapsed":            {stock.Answer{State: stock.Lapsed, Lines: sold}, []stock.Line{red}, nil},
		"closed":            {stock.Answer{State: stock.Closed, Lines: sold}, []stock.Line{red}, []stock.Line{red}},
		"sold, nothing":     {is, nil, nil},
		"sold, all of it":   {is, []stock.Line{{Item: "red", N: 2}}, nil},
		"sold, a part":      {is, []stock.Line{red, blue}, []stock.Line{one, blue}},
		"sold, paid twice":  {is, []stock.Line{red, red}, []stock.Line{one, red}},
		"sold, other item":  {is, []stock.Line{other}, []stock.Line{other}},
		"sold, less a unit": {is, []stock.Line{{Item: "red", N: 1}}, nil},
	} {
		require.Equal(t, row.want, row.answer.Refund(row.paid...), name)
	}
}

func TestOrder_Unusable_IsRefusedUnsent(t *testing.T) {
	t.Parallel()
	raw := redistest.Embedded(t).Client(t)
	recording := &rig.Recording{Client: raw}
	s := on(t, recording, exact).Sale("s")
	seventeen := make([]stock.Line, 17)
	for i := range seventeen {
		seventeen[i] = stock.Line{Item: strings.Repeat("i", i+1), N: 1}
	}
	for name, row := range map[string]struct {
		order stock.Order
		want  error
	}{
		"nobody":            {stock.Order{}, errs.ErrInvalidName},
		"lines of nobody":   {stock.Order{Lines: []stock.Line{{N: 1}}, New: true}, errs.ErrInvalidName},
		"id of anyone":      {stock.Order{ID: "~x"}, errs.ErrInvalidName},
		"user of anyone":    {stock.Order{Anyone: true, User: "ann"}, errs.ErrInvalidName},
		"zero byte":         {stock.Order{ID: "\x00,ann"}, errs.ErrInvalidName},
		"zero byte in user": {stock.Order{ID: "x", User: "a\x00"}, errs.ErrInvalidName},
		"no lines":          {stock.Order{ID: "x", Lines: []stock.Line{}}, errs.ErrInvalidOption},
		"no units":          {stock.Order{ID: "x", Lines: []stock.Line{{}}}, errs.ErrInvalidOption},
		"too many units":    {stock.Order{ID: "x", Lines: []stock.Line{{N: 1 << 53}}}, errs.ErrInvalidOption},
		"item twice":        {stock.Order{ID: "x", Lines: []stock.Line{{N: 1}, {N: 2}}}, errs.ErrInvalidOption},
		"item with a sign":  {stock.Order{ID: "x", Lines: []stock.Line{{Item: "a|b", N: 1}}}, errs.ErrInvalidName},
		"lines of anyone":   {stock.Order{Anyone: true, Lines: seventeen[:2]}, errs.ErrInvalidOption},
		"17 lines":          {stock.Order{ID: "x", Lines: seventeen}, errs.ErrInvalidOption},
	} {
		a, err := s.Buy(ctx, row.order)
		require.ErrorIs(t, err, row.want, name)
		require.Zero(t, a, name)
	}
	_, err := s.Reserve(ctx, stock.Order{Anyone: true}, time.Hour)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	_, err = s.Reserve(ctx, stock.Order{ID: "x"}, 0)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	_, err = s.Pay(ctx, "")
	require.ErrorIs(t, err, errs.ErrInvalidName)
	_, err = s.Return(ctx, "~call")
	require.ErrorIs(t, err, errs.ErrInvalidName)
	for name, spec := range map[string]stock.Spec{
		"no limit": {OpenFor: time.Hour}, "no end": {Limit: 1},
		"both":             {Limit: 1, Items: map[string]stock.Item{"a": {Limit: 1}}, OpenFor: 1},
		"item of no units": {Items: map[string]stock.Item{"a": {}}, OpenFor: time.Hour},
		"too long":         {Limit: 1, OpenFor: 1<<63 - 1},
	} {
		require.ErrorIs(t, s.Open(ctx, spec), errs.ErrInvalidOption, name)
	}
	require.ErrorIs(t, s.Change(ctx, stock.Change{}), errs.ErrInvalidOption)
	_, err = s.Restore(ctx, spec(1))
	require.ErrorIs(t, err, errs.ErrInvalidOption, "no book")
	require.Empty(t, recording.Sent)
}
