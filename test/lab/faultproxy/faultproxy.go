// Package faultproxy is a TCP proxy that causes network faults on request. It drops responses, freezes
// or closes connections, refuses connections, and forwards connections to different servers.
package faultproxy

import (
	"net"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// Proxy forwards connections to one address, or to several in turn.
type Proxy struct {
	addr string

	mu       sync.Mutex
	targets  []string // the next connection is forwarded to the first one
	changed  *sync.Cond
	listener *net.TCPListener // nil while the proxy refuses connections
	conns    map[net.Conn]struct{}
	mode     mode
	closed   bool
	held     int // reads that wait while the proxy is frozen

	running sync.WaitGroup
}

type mode int

const (
	pass mode = iota
	dropAnswers
	freeze
)

// Start starts a proxy to target on its own port. It ends with the test.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	// Hold the port, so that no outgoing connection takes it while the proxy refuses connections.
	port, err := childprocess.HoldPort(childprocess.ReuseAddr) // Go's listeners set SO_REUSEADDR
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	p, err := StartAt(t, port.Address(), target)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// StartAt starts a proxy to target on the address addr, which nothing else may use. The proxy ends with
// the test.
func StartAt(t testing.TB, addr, target string) (*Proxy, error) {
	p := &Proxy{addr: addr, targets: []string{target}, conns: map[net.Conn]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	if err := p.listen(); err != nil {
		return nil, err
	}
	t.Cleanup(p.close)
	return p, nil
}

// Addr returns the address that clients connect to, as host:port. It never changes.
func (p *Proxy) Addr() string { return p.addr }

// Direct forwards new connections to the given addresses in turn. Open connections keep their server
// until [Proxy.Break].
func (p *Proxy) Direct(targets ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = slices.Clone(targets)
}

// next returns the address for the next connection.
func (p *Proxy) next() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	target := p.targets[0]
	p.targets = append(p.targets[1:], target)
	return target
}

// DropAnswers discards the bytes from the server and still forwards the bytes from clients. The
// connections can't be used afterward: call [Proxy.Break] before [Proxy.Pass].
func (p *Proxy) DropAnswers() { p.set(dropAnswers) }

// Freeze holds all bytes in both directions until [Proxy.Pass].
func (p *Proxy) Freeze() { p.set(freeze) }

// Pass forwards everything and accepts connections again.
func (p *Proxy) Pass() {
	p.set(pass)
	p.mu.Lock()
	refusing := p.listener == nil && !p.closed
	p.mu.Unlock()
	if refusing {
		if err := p.listen(); err != nil {
			panic(err) // the port is held, so this is a bug
		}
	}
}

// Break closes all connections. Clients can reconnect at once.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	p.changed.Broadcast()
}

// Refuse closes all connections and refuses new ones until [Proxy.Pass].
func (p *Proxy) Refuse() {
	p.mu.Lock()
	if p.listener != nil {
		stopListening(p.listener)
		_ = p.listener.Close() // it only frees the descriptor
		p.listener = nil
	}
	p.mu.Unlock()
	p.Break()
}

// stopListening ends listening on all copies of the socket. A child process inherits a copy until it
// executes its program. The proxy couldn't listen on the address again while such a copy listens.
func stopListening(l *net.TCPListener) {
	if socket, err := l.SyscallConn(); err == nil {
		_ = socket.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
	}
}

// Held returns the number of requests and responses that the frozen proxy holds.
func (p *Proxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

func (p *Proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	p.changed.Broadcast()
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse()
	p.running.Wait()
}

func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = l.(*net.TCPListener)
	p.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(c) })
		}
	})
	return nil
}

// serve forwards a connection and returns when both directions have ended.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.next())
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(client, server) {
		return
	}
	defer p.drop(client, server)
	var answers sync.WaitGroup
	answers.Go(func() { p.copy(client, server, true) })
	p.copy(server, client, false)
	answers.Wait()
}

func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return false
	}
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// copy forwards bytes in one direction. When either direction ends, both connections are closed.
func (p *Proxy) copy(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.await(answers) {
			n = 0
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

// await blocks while the proxy is frozen and reports whether to forward the bytes that were read.
// Break doesn't end the wait: a frozen connection that Break closed fails at its next write.
func (p *Proxy) await(answers bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held++
	for p.mode == freeze && p.listener != nil && !p.closed {
		p.changed.Wait()
	}
	p.held--
	return p.mode != dropAnswers || !answers
}
