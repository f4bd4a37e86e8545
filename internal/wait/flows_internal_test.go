package wait

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInTurns_LongFlowBeforeAShortOne_TakeTurns(t *testing.T) {
	t.Parallel()
	var callers []*Caller
	for i := range 300 {
		flow := "long"
		if i >= 298 {
			flow = "short"
		}
		callers = append(callers, &Caller{request: Request{Flow: flow, Name: string(rune(i))}})
	}
	ordered := inTurns(callers)
	require.ElementsMatch(t, callers, ordered)
	require.Equal(t, callers[:perTurn], ordered[:perTurn])
	require.Equal(t, callers[298:], ordered[perTurn:perTurn+2])
	require.Equal(t, callers[perTurn:298], ordered[perTurn+2:], "the others in their order")
}
