package redlatchledger

import "errors"

var (
	// ErrHole: entries between the last one in the database and the first one of the ledger are nowhere.
	ErrHole = errors.New("redlatchledger: entries are missing")
	// ErrReissued: the database has another entry under the number of one of the ledger's. A failover has forgotten that
	// one.
	ErrReissued = errors.New("redlatchledger: a serial was given twice")
	// ErrUnknownOpening: this opening was not announced to the database, or it is not the first one of its name. The text
	// names the stock or packet, the opening, and the last one that the database knows. If it knows none, call Announce
	// where the stock is opened. If it knows one, and the server has lost that, its units are being sold a second time:
	// pause the stock, and see Mover.Carry. If this is another sale, or another packet, of the same name, see Admit.
	ErrUnknownOpening = errors.New("redlatchledger: the database does not know this opening")
	// ErrUnbalanced: with these entries the shares of a packet would not add up to its total.
	ErrUnbalanced = errors.New("redlatchledger: the amounts do not add up")
)
