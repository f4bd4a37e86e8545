package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

// Test processes run side by side. If they shared an address, a port that one of them had chosen, or had just left,
// could become another's before its own server was there, and its clients would talk to a stranger. So every process
// has an address of the 127.0.0.0/8 network to itself, which it claims by listening on claimPort there as long as it
// lives. On that address no port is used for two servers.
const (
	claimPort = 7999
	firstPort = 8000
	lastPort  = 32767 // the kernel gives clients those above, by default
)

// loopback is the address on which this process's servers listen.
type loopback struct {
	host  string
	claim net.Listener // nil: the system has no other loopback address than 127.0.0.1, which all processes share
	ports atomic.Uint32
}

var own = sync.OnceValue(claim)

func claim() *loopback {
	for try := range 1000 {
		n := (os.Getpid() + try*40503) % (254 << 16) // another step than from one process id to the next
		host := fmt.Sprintf("127.%d.%d.%d", 1+n>>16, n>>8&255, n&255)
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(claimPort)))
		if err == nil {
			return &loopback{host: host, claim: l}
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return &loopback{host: "127.0.0.1"}
}

// Host is the loopback address that this process has to itself; where the system has one only, 127.0.0.1.
func Host() string { return own().host }

// Listen listens on a port of Host that nothing in this process listened on before.
func Listen() (net.Listener, error) {
	o := own()
	if o.claim == nil {
		return net.Listen("tcp", o.host+":0")
	}
	for {
		l, err := net.Listen("tcp", o.next())
		if !errors.Is(err, syscall.EADDRINUSE) { // by a program that listens on all addresses
			return l, err
		}
	}
}

// FreeAddr returns an address of Host that was not given out before. Another program may have it in two cases: it
// listens on all addresses, or Host is shared by processes. The caller finds that out when it listens.
//
// FreeAddr does not listen itself, as a try: a process that another goroutine is just starting would inherit the
// listener, and would keep the port until it runs its own program.
func FreeAddr() (string, error) {
	if o := own(); o.claim != nil {
		return o.next(), nil
	}
	l, err := Listen()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (o *loopback) next() string {
	port := firstPort + (o.ports.Add(1)-1)%(lastPort-firstPort+1)
	return net.JoinHostPort(o.host, strconv.Itoa(int(port)))
}
