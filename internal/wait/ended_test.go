package wait_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/wait"
)

// Of each way in which a wait can end: what its caller is told, and what its caller must not be told.
func TestEnding_EveryReason_IsExplained(t *testing.T) {
	left := fmt.Errorf("%w: %w", context.Canceled, errors.New("the user left"))
	away := fmt.Errorf("%w: no server", errs.ErrUnavailable)
	contended := errors.New("somebody else has it")
	for name, c := range map[string]struct {
		err    error
		unsure bool
		text   string
		is     []error
		not    []error
	}{
		"a refusal of the try": {err: errs.ErrWrongType, text: "p: key holds another type",
			is: []error{errs.ErrWrongType}},
		"a try that is not repeated": {err: wait.Final(errs.ErrUnknownOutcome), text: "p: outcome unknown",
			is: []error{errs.ErrUnknownOutcome}},
		"the client was closed": {err: &wait.GaveUp{Failure: away, Cause: errs.ErrClosed}, text: `p: "n": closed`,
			is: []error{errs.ErrClosed}, not: []error{errs.ErrUnavailable}},
		"others had it":            {err: &wait.GaveUp{}, text: "somebody else has it", is: []error{contended}},
		"others had it, ctx ended": {err: &wait.GaveUp{Cause: left}, text: "somebody else has it", is: []error{contended}},
		"no server": {err: &wait.GaveUp{Failure: away}, text: "p: redis unavailable: no server",
			is: []error{errs.ErrUnavailable}},
		"no server, ctx ended": {err: &wait.GaveUp{Failure: away, Cause: left},
			text: "p: redis unavailable: no server: context canceled: the user left",
			is:   []error{errs.ErrUnavailable, context.Canceled}},
		"no server, but one before": {err: &wait.GaveUp{Failure: away}, unsure: true, is: []error{errs.ErrUnknownOutcome},
			not: []error{errs.ErrUnavailable}},
		"that, and ctx ended": {err: &wait.GaveUp{Failure: away, Cause: left}, unsure: true,
			is: []error{errs.ErrUnknownOutcome, context.Canceled}, not: []error{errs.ErrUnavailable}},
		"others had it, after unsure": {err: &wait.GaveUp{}, unsure: true, is: []error{contended}},
	} {
		t.Run(name, func(t *testing.T) {
			var got *wait.GaveUp
			err := wait.Ending{Package: "p", Name: "n", Unsure: c.unsure, Contended: func(g *wait.GaveUp) error {
				got = g
				return contended
			}}.Explain(c.err)
			if c.text != "" {
				require.EqualError(t, err, c.text)
			}
			for _, is := range c.is {
				require.ErrorIs(t, err, is)
			}
			for _, not := range c.not {
				require.NotErrorIs(t, err, not)
			}
			if got != nil {
				require.Same(t, c.err, got)
			}
		})
	}
	require.NoError(t, wait.Ending{}.Explain(nil))
}

func TestWait_FinalError_IsNotRepeated(t *testing.T) {
	for end, is := range map[error]error{wait.Final(errs.ErrUnknownOutcome): errs.ErrUnknownOutcome,
		errs.ErrWrongType: errs.ErrWrongType} {
		inRoom(t, func(t *testing.T, r *room) {
			q := r.request()
			q.Try = func(context.Context) (wait.Answer, error) { r.tries.Add(1); return wait.Answer{}, end }
			require.EqualError(t, r.Wait(t.Context(), q), is.Error())
			require.EqualValues(t, 1, r.tries.Load())
		})
	}
}

// Whose context ended has only waited, where what its last try may have taken is taken back. What earlier tries found
// out about the server is told all the same.
func TestEnding_CtxEndedDuringARequest_HasOnlyWaited(t *testing.T) {
	contended := errors.New("somebody else has it")
	cut := fmt.Errorf("%w: %w", errs.ErrUnknownOutcome, errs.Cut(context.Canceled))
	silent := fmt.Errorf("%w: no reply", errs.ErrUnknownOutcome)
	for name, c := range map[string]struct {
		failure, cause error
		keeps          bool
		is             error
	}{
		"a request was under way":           {failure: cut, cause: context.Canceled, is: contended},
		"nobody takes it back":              {failure: cut, cause: context.Canceled, keeps: true, is: errs.ErrUnknownOutcome},
		"the server was silent for a while": {failure: silent, cause: context.Canceled, is: errs.ErrUnknownOutcome},
		"waitTime was over":                 {failure: cut, is: errs.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			e := wait.Ending{Package: "p", Name: "n", Unsure: true, TakesBack: !c.keeps, Contended: func(*wait.GaveUp) error {
				return contended
			}}
			err := e.Explain(&wait.GaveUp{Left: -1, Failure: c.failure, Cause: c.cause})
			require.ErrorIs(t, err, c.is)
			if errors.Is(c.is, contended) {
				require.NotErrorIs(t, err, errs.ErrUnknownOutcome)
			}
		})
	}
}
