package stockmodel_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/oracle/stockmodel"
)

// documented is what Reserve, Claim, Confirm, Cancel, Return and Extend of package stock say of an id that was treated
// so before, for two units: an outcome, an error, or how many units came back.
var documented = map[string]string{
	"":                        "granted   granted   cancelled 0        0 not-found",
	"reserve":                 "replayed  mismatch  granted   2        0 granted",
	"reserve confirm":         "replayed  mismatch  replayed  0        2 replayed",
	"reserve confirm return":  "returned  mismatch  returned  0        0 returned",
	"reserve cancel":          "cancelled mismatch  cancelled 0        0 cancelled",
	"reserve end":             "expired   mismatch  granted   0        0 expired",
	"reserve end confirm":     "replayed  mismatch  replayed  0        2 replayed",
	"reserve end cancel":      "expired   mismatch  expired   0        0 expired",
	"reserve end end confirm": "expired   mismatch  expired   0        0 expired",
	"cancel":                  "cancelled cancelled cancelled 0        0 cancelled",
	"confirm":                 "cancelled cancelled cancelled 0        0 cancelled",
	"claim":                   "mismatch  replayed  mismatch  mismatch 2 mismatch",
	"claim return":            "mismatch  returned  mismatch  mismatch 0 mismatch",
}

// act does a verb, or lets time pass. A second end is that of the sale.
func act(j *stockmodel.Judge, now *int64, verb string) stockmodel.Answer {
	ask := map[string]stockmodel.Ask{"reserve": {Verb: stockmodel.Reserve, N: 2}, "claim": {Verb: stockmodel.Claim, N: 2},
		"confirm": {Verb: stockmodel.Confirm}, "cancel": {Verb: stockmodel.Cancel}, "return": {Verb: stockmodel.Return},
		"extend": {Verb: stockmodel.Extend}}
	if verb == "end" {
		*now += 1000
		j.Expire(*now)
		return stockmodel.Answer{}
	}
	ms := map[string]int64{"reserve": 900, "extend": 950}
	a, _ := j.Do(*now, "id", "ann", ask[verb], ms[verb])
	return a
}

func TestJudge_EveryVerbOnEveryState_AnswersAsDocumented(t *testing.T) {
	outcomes := map[int32]string{stockmodel.Granted: "granted", stockmodel.WasReturn: "returned",
		stockmodel.WasCancel: "cancelled", stockmodel.NoUnits: "expired", stockmodel.Unknown: "not-found",
		stockmodel.Other: "mismatch"}
	for before, answers := range documented {
		for i, verb := range []string{"reserve", "claim", "confirm", "cancel", "return", "extend"} {
			t.Run(before+", "+verb, func(t *testing.T) {
				j, now := stockmodel.NewJudge(2, 2), int64(0)
				j.End = 2000
				for _, v := range strings.Fields(before) {
					act(j, &now, v)
				}
				a, got := act(j, &now, verb), "0"
				switch {
				case a.Outcome == stockmodel.Granted && a.Again:
					got = "replayed"
				case a.Outcome != 0:
					got = outcomes[a.Outcome]
				case a.N == 2 && !a.Again:
					got = "2"
				}
				require.Equal(t, strings.Fields(answers)[i], got)
				require.Equal(t, int32(2), j.Left()+j.Held+j.Sold)
			})
		}
	}
}
