package redlatchledger

import "strings"

// UnitsOfQuery is what UnitsOf asks.
var UnitsOfQuery = strings.NewReplacer("{last}", "request").Replace(pastSalesOf)
