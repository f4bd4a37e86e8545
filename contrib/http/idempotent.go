package redlatchhttp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// IdempotencyKey is the header field of draft-ietf-httpapi-idempotency-key-header.
const IdempotencyKey = "Idempotency-Key"

// maxRequest is the longest body that Idempotent reads.
const maxRequest = 1 << 20

// IdempotentOptions are the settings of Idempotent. The zero value has the defaults.
type IdempotentOptions struct {
	// Key returns the key of a request, "" if it has none. Keys of different users must differ: put the user in front.
	// Defaults to ByHeader's text of Idempotency-Key.
	Key func(r *http.Request) string
	// Optional lets requests without a key pass, each of which runs the handler. Defaults to false: they get 400.
	Optional bool
	// Failed is called with the reason why a request got 503. nil, the default: it is not reported.
	Failed func(r *http.Request, err error)
}

// Idempotent returns middleware that runs the handler once for each key, in all processes, and answers later requests
// with the same key with the stored status, header and body, as draft-ietf-httpapi-idempotency-key-header says:
//
//   - 400: the request has no key.
//   - 409: another request with the key is in progress. A Once with a WithWait waits for it; without one, requests wait
//     until their clients leave.
//   - 422: the key was used for a request with another method, URL or body.
//   - 413: the body has more than 1 MiB. 503: Redis did not answer, or forgot the run; the client may send the request
//     again.
//
// An answer with a status of 500 or above is not stored, so the next request with the key runs the handler. Others are
// stored for OnceOptions.Keep. An answer has at most 1 MiB; a longer one is sent as 503, and is not stored. The handler
// runs under a context that ends if the run is lost; Token returns the token of the run. Requests with GET, HEAD,
// OPTIONS and TRACE pass. A stored answer has the header field Idempotency-Replayed: true.
func Idempotent(once *rlock.Once, o IdempotentOptions) func(http.Handler) http.Handler {
	if o.Key == nil {
		o.Key = func(r *http.Request) string { return plain(r.Header.Get(IdempotencyKey)) }
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.serve(once, next, w, r) })
	}
}

type tokenKey struct{}

// Token returns the fencing token of a run under Idempotent: greater than those of all earlier runs of the key. ok is
// false for any other context.
func Token(ctx context.Context) (token int64, ok bool) {
	token, ok = ctx.Value(tokenKey{}).(int64)
	return token, ok
}

// stored is an answer of a handler, as it is stored.
type stored struct {
	Status int
	Header http.Header
	Body   []byte
}

// errServer is for answers that are not stored.
var errServer = errors.New("the handler failed")

func (o *IdempotentOptions) serve(once *rlock.Once, next http.Handler, w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		next.ServeHTTP(w, r)
		return
	}
	key := o.Key(r)
	if key == "" && o.Optional {
		next.ServeHTTP(w, r)
		return
	}
	if key == "" {
		http.Error(w, IdempotencyKey+" is missing", http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "the body cannot be read, or is too long", http.StatusRequestEntityTooLarge)
		return
	}
	var failed *stored
	answer, replayed, err := once.Do(r.Context(), key, fingerprint(r, body),
		func(ctx context.Context, token int64) ([]byte, error) {
			run := r.WithContext(context.WithValue(ctx, tokenKey{}, token))
			run.Body = io.NopCloser(bytes.NewReader(body))
			record := &recorder{header: http.Header{}}
			next.ServeHTTP(record, run)
			if record.status >= http.StatusInternalServerError {
				failed = record.stored()
				return nil, errServer
			}
			return json.Marshal(record.stored())
		})
	var result stored
	switch {
	case errors.Is(err, errServer):
		failed.send(w)
	case err == nil:
		if err = json.Unmarshal(answer, &result); err != nil {
			o.refuse(w, r, err)
			return
		}
		if replayed {
			w.Header().Set("Idempotency-Replayed", "true")
		}
		result.send(w)
	default:
		o.refuse(w, r, err)
	}
}

// refuse answers a request that got no answer of the handler.
func (o *IdempotentOptions) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, redlatch.ErrMismatch):
		http.Error(w, IdempotencyKey+" was used for another request", http.StatusUnprocessableEntity)
	case errors.Is(err, redlatch.ErrNotAcquired):
		http.Error(w, "a request with this "+IdempotencyKey+" is in progress", http.StatusConflict)
	default:
		if o.Failed != nil && !errors.Is(r.Context().Err(), context.Canceled) {
			o.Failed(r, err)
		}
		w.Header().Set("Retry-After", "1")
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	}
}

// fingerprint is that of a request's method, URL and body.
func fingerprint(r *http.Request, body []byte) string {
	sum := sha256.New()
	sum.Write([]byte(strings.Join([]string{r.Method, r.URL.RequestURI(), ""}, "\n")))
	sum.Write(body)
	return hex.EncodeToString(sum.Sum(nil))
}

// recorder keeps the answer of a handler.
type recorder struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
}

func (rec *recorder) Header() http.Header { return rec.header }

func (rec *recorder) WriteHeader(status int) {
	if rec.status == 0 && status >= http.StatusOK { // before that it is no final answer
		rec.status, rec.sent = status, rec.header.Clone()
	}
}

func (rec *recorder) Write(data []byte) (int, error) {
	rec.WriteHeader(http.StatusOK)
	return rec.body.Write(data)
}

func (rec *recorder) stored() *stored {
	rec.WriteHeader(http.StatusOK)
	return &stored{rec.status, rec.sent, rec.body.Bytes()}
}

// send writes the answer.
func (s *stored) send(w http.ResponseWriter) {
	for field, values := range s.Header {
		w.Header()[field] = values
	}
	w.WriteHeader(s.Status)
	_, _ = w.Write(s.Body) // the client may have left
}
