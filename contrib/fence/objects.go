package redlatchfence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"
)

// ErrPrecondition is for a Store: the object was not as the condition of a Put says, or another write came at the same
// time. Objects asks again, and does not return it.
var ErrPrecondition = errors.New("redlatchfence: precondition failed")

// Object is an object of a Store.
type Object struct {
	Data  []byte
	Token Token // in its metadata; 0 if it has none
	// ETag is the version, as the store names it. It is opaque.
	ETag string
}

// Store is an object store with conditional writes: S3 is one, and others are made of a client in a few lines.
type Store interface {
	// Head returns an object without Data, and Get with it. fs.ErrNotExist if there is none.
	Head(ctx context.Context, key string) (Object, error)
	Get(ctx context.Context, key string) (Object, error)
	// Put writes an object with its token, and returns its new ETag. If o.ETag is set it does so only if the object has
	// that ETag (If-Match), and otherwise only if there is no object (If-None-Match: *): ErrPrecondition if it was not
	// written, and any other error if it may have been.
	Put(ctx context.Context, key string, o Object) (etag string, err error)
}

// Objects guards the objects of a store, each by the token in its metadata. Every write is conditional on the version
// whose token was checked. Reading takes one call, writing two, and more while others write the same object. Deleting
// an object forgets its token.
//
// The condition holds what it promises only if each token makes another ETag. S3's ETag is a hash of the data alone: if
// a later holder writes the same data again, or data that was there before, a suspended older one finds the ETag that
// it has checked, and its write succeeds. So either Stamp puts the token into the data, or the store is one whose ETags
// are unique: UniqueETags.
type Objects struct {
	// Store has the objects. Required.
	Store Store
	// Stamp returns data with the token in it, in place of the one that it may have: see StampJSON. It is called with nil
	// for an object that does not exist. Required unless UniqueETags.
	Stamp func(data []byte, token Token) ([]byte, error)
	// UniqueETags says that no two writes of an object have the same ETag, as with Azure Blob Storage's, and with a Store
	// that has Google Cloud Storage's generation as its ETag. Not with S3's.
	UniqueETags bool
}

func (o Objects) check(key string, token Token) error {
	if o.Store == nil {
		return invalid("Store", "nil", "an object store")
	}
	if (o.Stamp != nil) == o.UniqueETags {
		return invalid("Stamp", map[bool]string{true: "nil", false: "set"}[o.Stamp == nil],
			fmt.Sprintf("set unless UniqueETags is, which is %v", o.UniqueETags))
	}
	return admissible(key, token)
}

// Advance writes the object as it is, with the token: see Guard. One that does not exist is created, empty but for what
// Stamp makes of nil.
func (o Objects) Advance(ctx context.Context, key string, token Token) error {
	_, err := o.Read(ctx, key, token)
	return err
}

// Read returns the object's data after it has advanced the token, so that no older holder can write any more: nil if
// there was no object. Use it, not a plain read, for data that is changed and written back.
func (o Objects) Read(ctx context.Context, key string, token Token) (data []byte, err error) {
	err = o.swap(ctx, key, token, Store.Get, func(now Object) ([]byte, bool) {
		data = now.Data
		return now.Data, now.Token == token && now.ETag != ""
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Put writes the object.
//
//   - nil: it is written, with the token.
//   - ErrStale: the object has a greater token. Nothing was written.
//   - ctx's error: others kept writing the object until ctx ended, or the last Put's outcome is unknown.
//   - any other error is the Store's, or Stamp's; after one of a Put the object may be written.
func (o Objects) Put(ctx context.Context, key string, token Token, data []byte) error {
	return o.swap(ctx, key, token, Store.Head, func(Object) ([]byte, bool) { return data, false })
}

// swap replaces the object with what change makes of it, unless change says that it is as it should be.
func (o Objects) swap(ctx context.Context, key string, token Token,
	look func(Store, context.Context, string) (Object, error), change func(now Object) (data []byte, done bool)) error {
	if err := o.check(key, token); err != nil {
		return err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		now, err := look(o.Store, ctx, key)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if now.Token > token {
			return stale(key, token)
		}
		data, done := change(now)
		if done {
			return nil
		}
		if o.Stamp != nil {
			if data, err = o.Stamp(data, token); err != nil {
				return err
			}
		}
		// Between the look and this, 34 may have written: then the ETag differs, the store refuses, and the next look finds
		// 34. What was written with an older or with this token is looked at again, too, so that a Read returns what was
		// replaced.
		etag, err := o.Store.Put(ctx, key, Object{Data: data, Token: token, ETag: now.ETag})
		switch {
		case err == nil && etag == now.ETag && token != now.Token:
			return fmt.Errorf("redlatchfence: object %.64q: the ETag %.64q did not change with the token: "+
				"UniqueETags does not hold, or Stamp leaves the token out", key, etag)
		case err == nil:
			return nil
		case !errors.Is(err, ErrPrecondition):
			return err
		}
		select {
		case <-time.After(rand.N(wait) + wait/2):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// StampJSON is a Stamp for data that is a JSON object: it sets the member fencing_token. It sorts the members. Data
// that is not a JSON object is an error.
func StampJSON(data []byte, token Token) ([]byte, error) {
	members := map[string]json.RawMessage{}
	if data != nil {
		if err := json.Unmarshal(data, &members); err != nil {
			return nil, fmt.Errorf("redlatchfence: StampJSON: %w", err)
		}
		if members == nil { // of null
			return nil, invalid("data", "null", "a JSON object")
		}
	}
	members["fencing_token"] = fmt.Append(nil, int64(token))
	return json.Marshal(members)
}
