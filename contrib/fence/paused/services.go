//go:build unix && !solaris && !aix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/contrib/fence/grpcfence"
)

// vault is the accounts that a service has in memory.
type vault struct {
	mu sync.Mutex
	n  map[string]int64
}

func (v *vault) get(name string) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.n[name]
}

func (v *vault) set(name string, n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.n[name] = n
}

// overHTTP serves GET and PUT of /plain/name, and of /fenced/name behind a guard.
func (v *vault) overHTTP() http.Handler {
	account := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := name(r)
		if r.Method != http.MethodPut {
			fmt.Fprint(w, v.get(name))
			return
		}
		text, err := io.ReadAll(r.Body)
		n, err2 := strconv.ParseInt(string(text), 10, 64)
		if err != nil || err2 != nil {
			http.Error(w, "no number", http.StatusBadRequest)
			return
		}
		v.set(name, n)
	})
	mux := http.NewServeMux()
	mux.Handle("/plain/", account)
	mux.Handle("/fenced/", redlatchfence.Handler(&redlatchfence.Memory{}, name, account))
	return mux
}

func name(r *http.Request) string { return r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:] }

// ask sends a request, with ctx's token if it has one, and returns the answer's body.
func ask(ctx context.Context, method, url string, body []byte) ([]byte, error) {
	client := http.DefaultClient
	if _, ok := redlatchfence.FromContext(ctx); ok {
		client = fencedClient
	}
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = redlatchfence.Refused(resp)
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return text, err
}

var fencedClient = &http.Client{Transport: redlatchfence.Transport{}}

func put(ctx context.Context, url string, data []byte) error {
	_, err := ask(ctx, http.MethodPut, url, data)
	return err
}

type inHTTP struct{ url, way string }

func (a inHTTP) create(context.Context, []string) error { return nil }

func (a inHTTP) get(ctx context.Context, path, name string) (int64, error) {
	text, err := ask(ctx, http.MethodGet, a.url+path+name, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(text), 10, 64)
}

func (a inHTTP) look(ctx context.Context, name string) (int64, error) {
	return a.get(ctx, "/plain/", name)
}

func (a inHTTP) read(ctx context.Context, name string, token redlatchfence.Token) (int64, error) {
	if a.way != guard {
		return a.look(ctx, name)
	}
	return a.get(redlatchfence.NewContext(ctx, token), "/fenced/", name)
}

func (a inHTTP) write(ctx context.Context, name string, token redlatchfence.Token, n int64) error {
	value := []byte(strconv.FormatInt(n, 10))
	if a.way == none {
		return put(ctx, a.url+"/plain/"+name, value)
	}
	return put(redlatchfence.NewContext(ctx, token), a.url+"/fenced/"+name, value)
}

// overGRPC is a server of /vault/Get and /vault/Set, which take "name" and "name=n".
func (v *vault) overGRPC(options ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(options...)
	method := func(name string, serve func(text string) string) grpc.MethodDesc {
		return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error,
			intercept grpc.UnaryServerInterceptor) (any, error) {
			req := new(wrapperspb.StringValue)
			if err := decode(req); err != nil {
				return nil, err
			}
			handle := func(_ context.Context, req any) (any, error) {
				return wrapperspb.String(serve(req.(*wrapperspb.StringValue).Value)), nil
			}
			if intercept == nil {
				return handle(ctx, req)
			}
			return intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: "/vault/" + name}, handle)
		}}
	}
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "vault", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
		method("Get", func(name string) string { return strconv.FormatInt(v.get(name), 10) }),
		method("Set", func(text string) string {
			name, value, _ := strings.Cut(text, "=")
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return err.Error()
			}
			v.set(name, n)
			return "ok"
		}),
	}}, v)
	return s
}

// fencedGRPC are the server's interceptors.
func fencedGRPC() []grpc.ServerOption {
	fence := grpcfence.New(&redlatchfence.Memory{}, func(_ context.Context, _ string, req any) string {
		name, _, _ := strings.Cut(req.(*wrapperspb.StringValue).Value, "=")
		return name
	})
	return []grpc.ServerOption{grpc.UnaryInterceptor(fence.Unary), grpc.StreamInterceptor(fence.Stream)}
}

type inGRPC struct {
	plain, fenced *grpc.ClientConn
	way           string
}

func dial(address string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

func call(ctx context.Context, conn *grpc.ClientConn, method, text string) (string, error) {
	reply := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, "/vault/"+method, wrapperspb.String(text), reply)
	return reply.Value, err
}

func (a inGRPC) create(context.Context, []string) error { return nil }

func (a inGRPC) get(ctx context.Context, conn *grpc.ClientConn, name string) (int64, error) {
	text, err := call(ctx, conn, "Get", name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

func (a inGRPC) look(ctx context.Context, name string) (int64, error) {
	return a.get(ctx, a.plain, name)
}

func (a inGRPC) read(ctx context.Context, name string, token redlatchfence.Token) (int64, error) {
	if a.way != guard {
		return a.look(ctx, name)
	}
	return a.get(redlatchfence.NewContext(ctx, token), a.fenced, name)
}

func (a inGRPC) write(ctx context.Context, name string, token redlatchfence.Token, n int64) error {
	conn := a.fenced
	if a.way == none {
		conn = a.plain
	}
	text, err := call(redlatchfence.NewContext(ctx, token), conn, "Set", fmt.Sprintf("%s=%d", name, n))
	if err == nil && text != "ok" {
		err = fmt.Errorf("/vault/Set answers %s", text)
	}
	return err
}
