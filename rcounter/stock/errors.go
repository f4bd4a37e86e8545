package stock

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

var (
	// ErrNoStock: the server has no such sale, or only a part of it; then the error is redlatch.ErrCorrupt too. The same
	// is said of an order that the server has forgotten, if Options.Books has units of it. Nothing is known of any order:
	// look in your own records. Every verb returns it, and only Open and Restore make a sale.
	ErrNoStock = errs.New("no_stock", "no such sale")
	// ErrLater: the sale decides nothing now. The sale is paused or suspended, or its start is ahead. Nothing was changed.
	// Ask again. The Answer beside it has Why, and Until if the start is known.
	ErrLater = errs.Passing("later", "the sale decides nothing now")
)

// packageName is the package in errors and events: the name that it takes from the package that it replaces.
const packageName = "stock"

// edge gives an error that a verb returns the package's name, once.
func edge(err *error) { *err = edged(*err) }

func edged(err error) error { return errs.Edge(packageName, err) }

// malformed is the error of a reply that no script of ours gives.
func malformed(what, key string) error { return fmt.Errorf("unexpected reply to %s on %q", what, key) }
