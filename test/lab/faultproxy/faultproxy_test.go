package faultproxy

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// echo starts a server that sends every line back. The channel got receives each line as well.
func echo(t *testing.T) (addr string, got chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	got = make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					got <- lines.Text()
					if _, err := io.WriteString(c, lines.Text()+"\n"); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), got
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, line string) {
	t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, ch <-chan string) string {
	t.Helper()
	select {
	case s := <-ch:
		return s
	case <-time.After(time.Minute):
		t.Fatal("nothing arrived")
		return ""
	}
}

func answers(c net.Conn) <-chan string {
	ch := make(chan string, 100)
	go func() {
		for lines := bufio.NewScanner(c); lines.Scan(); {
			ch <- lines.Text()
		}
		close(ch)
	}()
	return ch
}

func TestProxy(t *testing.T) {
	target, got := echo(t)
	p := Start(t, target)
	c := dial(t, p)
	a := answers(c)
	send(t, c, "one")
	if g, w := await(t, got)+await(t, a), "oneone"; g != w {
		t.Errorf("passing: got %q, want %q", g, w)
	}

	p.Freeze()
	send(t, c, "two")
	other := dial(t, p)
	send(t, other, "three")
	if len(got) != 0 || len(a) != 0 {
		t.Error("something passed while frozen")
	}
	p.Pass()
	if g := await(t, a); g != "two" {
		t.Errorf("after the freeze: got %q, want two", g)
	}
	for range 2 {
		await(t, got)
	}

	p.DropAnswers()
	send(t, c, "four")
	if g := await(t, got); g != "four" {
		t.Errorf("the server got %q, want four", g)
	}
	p.Break()
	p.Pass()
	if g := await(t, a); g != "" {
		t.Errorf("got a response: %q", g)
	}

	p.Refuse()
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		c.Close()
		t.Error("connected although the proxy refuses connections")
	}
	p.Pass()
	c = dial(t, p)
	send(t, c, "five")
	if g := await(t, answers(c)); g != "five" {
		t.Errorf("got %q, want five", g)
	}
}

func TestDirect(t *testing.T) {
	first, gotFirst := echo(t)
	second, gotSecond := echo(t)
	p := Start(t, first)
	stays := dial(t, p)
	send(t, stays, "before")
	await(t, gotFirst)
	p.Direct(second, first)
	for _, got := range []chan string{gotSecond, gotFirst, gotSecond} {
		send(t, dial(t, p), "in turn")
		await(t, got)
	}
	send(t, stays, "after")
	if line := await(t, gotFirst); line != "after" {
		t.Errorf("the open connection's server got %q, want its next line", line)
	}
}

func TestProxyStaysClosed(t *testing.T) {
	target, _ := echo(t)
	var p *Proxy
	t.Run("lifetime", func(t *testing.T) { p = Start(t, target) })
	p.Pass()
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		c.Close()
		t.Error("a proxy whose test has ended accepts connections")
	}
}

// TestPassWhileProcessesStart guards against a Pass that fails because the address is still in use. A
// child process has a copy of the listener until it executes its program.
func TestPassWhileProcessesStart(t *testing.T) {
	p := Start(t, "127.0.0.1:1")
	stop := make(chan struct{})
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	defer starting.Wait()
	defer close(stop)
	for range 500 {
		p.Refuse()
		p.Pass()
	}
}
