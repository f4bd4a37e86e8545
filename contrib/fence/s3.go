package redlatchfence

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// metadata is the header field of an object's metadata that has its token.
const metadata = "x-amz-meta-fencing-token"

// S3 is a Store of a bucket that speaks the S3 protocol with conditional writes: Amazon S3, MinIO, Ceph, Cloudflare R2.
// Its ETags are hashes of the data: use it with Objects.Stamp.
type S3 struct {
	// Bucket is the URL of the bucket, such as https://bucket.s3.eu-west-1.amazonaws.com. Required.
	Bucket string
	// Client sends the requests. Its Transport signs them, with the signer of your SDK. Defaults to http.DefaultClient,
	// which does not sign.
	Client *http.Client
}

// Head is that of Store.
func (s S3) Head(ctx context.Context, key string) (Object, error) {
	o, _, err := s.do(ctx, http.MethodHead, key, nil, nil)
	return o, err
}

// Get is that of Store.
func (s S3) Get(ctx context.Context, key string) (Object, error) {
	o, data, err := s.do(ctx, http.MethodGet, key, nil, nil)
	o.Data = data
	return o, err
}

// Put is that of Store.
func (s S3) Put(ctx context.Context, key string, o Object) (etag string, err error) {
	header := http.Header{}
	header.Set(metadata, strconv.FormatInt(int64(o.Token), 10))
	if o.ETag != "" {
		header.Set("If-Match", o.ETag)
	} else {
		header.Set("If-None-Match", "*")
	}
	written, _, err := s.do(ctx, http.MethodPut, key, header, o.Data)
	return written.ETag, err
}

func (s S3) do(ctx context.Context, method, key string, header http.Header, body []byte) (
	o Object, data []byte, err error) {
	bucket, err := url.Parse(s.Bucket)
	if err != nil || bucket.Host == "" {
		return Object{}, nil, invalid("Bucket", fmt.Sprintf("%.64q", s.Bucket), "the URL of a bucket")
	}
	bucket.Path = strings.TrimSuffix(bucket.Path, "/") + "/" + key // not JoinPath: a key may have dots and empty elements
	bucket.RawPath = strings.ReplaceAll(bucket.EscapedPath(), "+", "%2B")
	r, err := http.NewRequestWithContext(ctx, method, bucket.String(), bytes.NewReader(body))
	if err != nil {
		return Object{}, nil, err
	}
	if header != nil {
		r.Header = header
	}
	resp, err := cmp.Or(s.Client, http.DefaultClient).Do(r)
	if err != nil {
		return Object{}, nil, err
	}
	defer resp.Body.Close()
	if data, err = io.ReadAll(resp.Body); err != nil {
		return Object{}, nil, err
	}
	failed := func(err error) (Object, []byte, error) {
		return Object{}, nil, fmt.Errorf("redlatchfence: %s %.64q: %s: %w", method, key, resp.Status, err)
	}
	switch put := method == http.MethodPut; {
	case resp.StatusCode == http.StatusOK:
	case resp.StatusCode == http.StatusNotFound && !put:
		return failed(fs.ErrNotExist)
	case put && resp.StatusCode == http.StatusPreconditionFailed: // the ETag differs, or there is an object
		return failed(ErrPrecondition)
	case put && resp.StatusCode == http.StatusConflict: // another request came at the same time: S3 says to ask again
		return failed(ErrPrecondition)
	case put && resp.StatusCode == http.StatusNotFound && bytes.Contains(data, []byte("NoSuchKey")): // it was deleted
		return failed(ErrPrecondition)
	default:
		return failed(fmt.Errorf("%.256q", data))
	}
	o = Object{ETag: resp.Header.Get("ETag")}
	if o.ETag == "" {
		return failed(fmt.Errorf("the answer has no ETag"))
	}
	if text := resp.Header.Get(metadata); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || Token(n).Check() != nil {
			return failed(fmt.Errorf("%s is %.64q, which is not a token", metadata, text))
		}
		o.Token = Token(n)
	}
	return o, data, nil
}
