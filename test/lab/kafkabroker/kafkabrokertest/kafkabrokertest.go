// Package kafkabrokertest provides real Kafka brokers for tests. All tests of a package can share one
// broker, which starts with the first test that needs it:
//
//	func TestMain(m *testing.M) { os.Exit(kafkabrokertest.Run(m)) }
//
//	func TestPublish(t *testing.T) {
//		broker := kafkabrokertest.Shared(t)
//		topic := kafkabrokertest.Topic(t, broker, "publish", 3, nil)
//		...
//	}
//
// A test that kills, freezes or configures a broker starts its own one with [Start].
//
// A failed test prints the last lines of the broker's log.
package kafkabrokertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
)

const logLines = 30

// shared is the broker that the tests of this binary share. The first test that needs the broker starts
// it.
var shared struct {
	once   sync.Once
	broker *kafkabroker.Broker
	err    error
}

// Shared returns the broker that the tests of this test binary share. The first call starts it. The
// broker has only a plaintext listener. Tests must not kill, stop or freeze it.
func Shared(t testing.TB) *kafkabroker.Broker {
	t.Helper()
	shared.once.Do(func() {
		shared.broker, shared.err = kafkabroker.Start(context.Background(), kafkabroker.Options{
			// No test waits until this broker has started again, so its session can be long enough for
			// a machine that is busy for minutes. The controller fences a broker whose session has
			// expired, and topic creation then fails with INVALID_REPLICATION_FACTOR.
			Properties: map[string]string{"broker.session.timeout.ms": "300000"},
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	showLog(t, shared.broker)
	return shared.broker
}

// Run runs the tests, closes the shared broker if a test started it, and returns the exit code. Without
// Run, the reaper ends the broker after the process ends.
func Run(m *testing.M) int {
	code := m.Run()
	if shared.broker == nil {
		return code
	}
	if err := shared.broker.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// A Broker is the broker of one test. Errors of its methods fail the test.
type Broker struct {
	*kafkabroker.Broker

	t testing.TB
}

// Start starts a broker for t alone and closes it at the end of t.
func Start(t testing.TB, opts kafkabroker.Options) *Broker {
	t.Helper()
	broker, err := kafkabroker.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Close(); err != nil {
			t.Error(err)
		}
	})
	showLog(t, broker)
	return &Broker{Broker: broker, t: t}
}

// Start starts the broker again with its ports and data.
func (b *Broker) Start() {
	b.t.Helper()
	b.must(b.Broker.Start(b.t.Context()))
}

// Stop shuts the broker down.
func (b *Broker) Stop() {
	b.t.Helper()
	b.must(b.Broker.Stop())
}

// Kill kills the broker with SIGKILL.
func (b *Broker) Kill() {
	b.t.Helper()
	b.must(b.Broker.Kill())
}

// Freeze freezes the broker.
func (b *Broker) Freeze() {
	b.t.Helper()
	b.must(b.Broker.Freeze())
}

// Thaw resumes a frozen broker.
func (b *Broker) Thaw() {
	b.t.Helper()
	b.must(b.Broker.Thaw())
}

// Forget removes all data of a stopped broker.
func (b *Broker) Forget() {
	b.t.Helper()
	b.must(b.Broker.Forget())
}

func (b *Broker) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// A TopicCreator is a *kafkabroker.Broker or a *Broker.
type TopicCreator interface {
	CreateTopic(ctx context.Context, name string, partitions int, config map[string]string) error
}

var _, _ TopicCreator = (*kafkabroker.Broker)(nil), (*Broker)(nil)

// Client returns a client of the brokers at the addresses, with connections of its own, which close when
// the test ends. The connections of kafka-go's default transport never close. When another server gets
// the port of a broker that has ended, kafka-go takes the server's bytes for the length of a list, and
// allocates gigabytes.
func Client(t testing.TB, addrs ...string) *kafka.Client {
	transport := &kafka.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(addrs...), Transport: transport}
}

// TopicName returns a topic name that begins with prefix, in lowercase. Each call returns another name,
// so a test that is repeated on the shared broker starts with an empty topic. The prefix can be the
// name of a test: each character that topic names don't allow becomes a hyphen.
func TopicName(prefix string) string {
	return unnamable.ReplaceAllString(strings.ToLower(prefix), "-") + "-" + strings.ToLower(rand.Text()[:10])
}

// unnamable matches characters that TopicName replaces.
var unnamable = regexp.MustCompile(`[^a-z0-9._-]`)

// Topic creates a topic with a name from TopicName and returns the name. The topic remains after t. If
// config is nil, records don't expire. Otherwise the broker would delete the records 30 seconds after
// its start, because tests write old, fixed timestamps.
func Topic(t testing.TB, broker TopicCreator, prefix string, partitions int, config map[string]string) string {
	t.Helper()
	name := TopicName(prefix)
	if config == nil {
		config = map[string]string{"retention.ms": "-1"}
	}
	if err := broker.CreateTopic(t.Context(), name, partitions, config); err != nil {
		t.Fatal(err)
	}
	return name
}

func showLog(t testing.TB, broker *kafkabroker.Broker) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the Kafka broker's log ends with:\n%s", broker.LogTail(logLines))
		}
	})
}
