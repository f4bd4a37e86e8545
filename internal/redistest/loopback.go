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

// Test processes run side by side. If they shared an address, another process could take a port that a process had
// chosen or just left, and the clients of that process would connect to the wrong server. So each process has an
// address of the 127.0.0.0/8 network to itself. It claims the address by listening on claimPort as long as it lives. On
// that address no port is used for two servers.
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

// Host returns the loopback address that this process has to itself, or 127.0.0.1 if the system has only that.
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

// FreeAddr returns an address of Host that it has not returned before. Another program may use the address, if that
// program listens on all addresses, or if processes share Host. The caller learns of it when it listens.
//
// FreeAddr does not try to listen. A process that another goroutine is starting at that moment would inherit the
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
