package main

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/redlatch/redlatch"
)

// state is what an order is, as the shop answers it.
type state string

const (
	held      state = "held"      // until the payment comes, or the time is over
	sold      state = "sold"      // paid; it has its unit
	returned  state = "returned"  // was sold; the unit and the money went back
	cancelled state = "cancelled" // by the customer, before the payment came
	expired   state = "expired"   // the time is over; a payment that comes now may still get what is left
	refunded  state = "refunded"  // paid, and nothing was left: the money went back
	soldOut   state = "sold out"
	closed    state = "closed"   // the sale is over, or stands still
	tooMany   state = "one each" // the customer has a unit
	unknown   state = "unknown"  // there is no such order
)

// orderForm is the body of POST /reserve, /cancel and /refund.
type orderForm struct {
	Order string `json:"order"`
	User  string `json:"user"`
}

// paymentForm is the body of POST /pay, and of the bank's POST /charge and /refund.
type paymentForm struct {
	Payment string `json:"payment"`
	Order   string `json:"order"`
	Cents   int64  `json:"cents"`
}

// orderAnswer is what every request on an order is answered with.
type orderAnswer struct {
	Order   string `json:"order"`
	State   state  `json:"state"`
	Unit    int64  `json:"unit,omitempty"`      // its number, once it is sold
	PayIn   int64  `json:"pay_in_ms,omitempty"` // how long it is held yet
	Cents   int64  `json:"cents,omitempty"`     // to be paid
	Payment string `json:"payment,omitempty"`   // under this id
	Worker  int    `json:"worker"`              // who answered
}

const maxBody = 1 << 16

func readJSON(r *http.Request, into any) error {
	return json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody)).Decode(into)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // it fails if the client is gone
}

// failure answers an error. 503 is for those after which the same request, with the same ids, is to be sent again: to
// this worker or to another one. Whether it was served need not be known.
func failure(w http.ResponseWriter, err error) {
	var bad *badRequest
	switch {
	case errors.As(err, &bad):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case redlatch.Retryable(err) || errors.Is(err, errBank):
		w.Header().Set("Retry-After", "0")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// badRequest is an error of the caller.
type badRequest struct{ text string }

func (b *badRequest) Error() string { return b.text }
