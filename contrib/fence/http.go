package redlatchfence

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
)

// Header is the header field of a request that carries its token, as a decimal number. A response that refuses a stale
// one has it, too, with the value "stale".
const Header = "Fencing-Token"

// Transport sends the token of each request's context, NewContext, in the field Fencing-Token. A request without a
// token is not sent: ErrInvalid. It is safe for concurrent use if Base is.
type Transport struct {
	// Base sends the requests. Defaults to http.DefaultTransport.
	Base http.RoundTripper
}

// RoundTrip is that of http.RoundTripper. It returns a refusal as the response that it is: see Refused.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, _ := FromContext(r.Context())
	if err := token.Check(); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(Header, strconv.FormatInt(int64(token), 10))
	return cmp.Or(t.Base, http.DefaultTransport).RoundTrip(r)
}

// Refused returns ErrStale if the response is that of a Handler to a stale token, and nil otherwise: 412 Precondition
// Failed may also come of an ETag, and is not taken for it.
func Refused(r *http.Response) error {
	if r.StatusCode == http.StatusPreconditionFailed && r.Header.Get(Header) == "stale" {
		token, _ := FromContext(r.Request.Context())
		return stale(r.Request.URL.Path, token)
	}
	return nil
}

// Handler returns a handler that passes a request on to next if its token is not stale. The request's context has the
// token: FromContext. It refuses
//
//   - a stale token with 412 Precondition Failed, and the field Fencing-Token: stale. It is 412 and not 409 because a
//     condition that the client sent does not hold, and the same request never succeeds;
//   - a request without a token with 428 Precondition Required;
//   - with 400 one whose field is not a token, and one for which resource returns a name that is none;
//   - with 503 what the guard could not judge.
//
// If guard is an Exclusive, next serves the requests of a resource one after the other, so that none can take effect
// after one with a greater token. With another guard the check comes before the act: next itself must use a guard where
// it writes, with FromContext's token, or a request that is suspended between the two writes late.
//
// Requests that only read advance the token as well, which is what a holder that then writes needs.
//
// It panics if an argument is nil.
func Handler(guard Guard, resource func(*http.Request) string, next http.Handler) http.Handler {
	if guard == nil || resource == nil || next == nil {
		panic("redlatchfence: Handler: an argument is nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		field := r.Header.Values(Header)
		if len(field) == 0 {
			http.Error(w, "the field "+Header+" is missing", http.StatusPreconditionRequired)
			return
		}
		n, err := strconv.ParseInt(field[0], 10, 64)
		if err != nil || len(field) > 1 || Token(n).Check() != nil {
			http.Error(w, "the field "+Header+" is not one fencing token", http.StatusBadRequest)
			return
		}
		served := false
		err = act(NewContext(r.Context(), Token(n)), guard, resource(r), Token(n), func(ctx context.Context) error {
			served = true
			next.ServeHTTP(w, r.WithContext(ctx))
			return nil
		})
		switch {
		case err == nil || served:
		case errors.Is(err, ErrStale):
			w.Header().Set(Header, "stale")
			http.Error(w, "the fencing token is stale", http.StatusPreconditionFailed)
		case errors.Is(err, ErrInvalid):
			http.Error(w, "the request names no resource", http.StatusBadRequest)
		default:
			http.Error(w, "the fencing token cannot be checked", http.StatusServiceUnavailable)
		}
	})
}

// act calls fn under the guard if it is Exclusive, and after it otherwise.
func act(ctx context.Context, guard Guard, resource string, token Token, fn func(context.Context) error) error {
	if g, ok := guard.(Exclusive); ok {
		return g.Do(ctx, resource, token, fn)
	}
	if err := guard.Advance(ctx, resource, token); err != nil {
		return err
	}
	return fn(ctx)
}
