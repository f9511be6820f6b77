package broker

import (
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// interrupted is an address that calls a function when kafka-go first reads it, which is after RoundTrip has
// chosen a pool, and before that pool sends the request.
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
func pools() int {
	stacks := make([]byte, 1<<22)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "kafka-go.(*connPool).discover(")
}
