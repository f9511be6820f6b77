package broker

import (
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// interrupted is an address that calls a function when kafka-go first reads it. By then, RoundTrip has chosen
// a pool, and the pool has not sent the request.
type interrupted struct {
	net.Addr

	once *sync.Once
	call func()
}

func (a interrupted) Network() string {
	a.once.Do(a.call)
	return a.Addr.Network()
}

// TestARequestOnAPoolThatWasClosed verifies that a request on a pool that was replaced or closed meanwhile
// leaves no goroutine behind. Otherwise, kafka-go refreshes the metadata of that pool forever.
func TestARequestOnAPoolThatWasClosed(t *testing.T) {
	for name, interrupt := range map[string]func(*Client){
		"replaced": func(c *Client) { c.transport.renew(time.Now(), 0) },
		"closed":   func(c *Client) { _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			before := pools()
			_, c := newFake(t)
			put(t, c, faulty, 0, record("a", "1"))
			addr := interrupted{kafka.TCP(c.opts.Addrs...), new(sync.Once), func() { interrupt(c) }}
			_, err := c.transport.RoundTrip(within(t), addr, &metadata.Request{TopicNames: []string{}})
			if name == "replaced" && err != nil {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			poll.Holds(t, "every pool is closed", func() bool { return pools() <= before })
		})
	}
}

// pools returns the number of pools whose metadata kafka-go refreshes.
func pools() int { return len(goroutines("kafka-go.(*connPool).discover(")) }

// goroutines returns the stacks of the goroutines that run a function.
func goroutines(function string) (found []string) {
	stacks := make([]byte, 1<<22)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, function) {
			found = append(found, stack)
		}
	}
	return found
}

// TestCredentialsThatChangeDuringARenewal verifies that no connection with the former credentials is left
// if they change while the pool is replaced.
func TestCredentialsThatChangeDuringARenewal(t *testing.T) {
	cluster, c := newFake(t)
	c.transport.pool.Load().IdleTimeout = time.Hour // otherwise, a leftover connection would close by itself
	put(t, c, faulty, 0, record("a", "1"))
	held, release := make(chan struct{}, 1), make(chan struct{})
	cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		held <- struct{}{}
		cluster.SleepControl(func() { <-release })
		return nil, nil, false
	})
	var changing sync.WaitGroup
	changing.Go(func() { c.transport.renew(time.Now(), 0) })
	<-held // the new pool has connected with the former credentials
	former := c.connections()
	var forgotten atomic.Bool
	changing.Go(func() { c.transport.forgetPool(); forgotten.Store(true) })
	poll.Holds(t, "forgetPool returns or waits for the renewal", func() bool {
		waiting := goroutines("(*transport).forgetPool(")
		return forgotten.Load() || len(waiting) > 0 && strings.Contains(waiting[0], "[sync.Mutex.Lock")
	})
	close(release)
	changing.Wait()
	put(t, c, faulty, 0, record("a", "1"))
	c.awaitClosed(t, former)
}
