// Package kafkabrokertest gives a test a real Kafka broker: the one that all
// tests of a package share, started by the first that wants it,
//
//	func TestMain(m *testing.M) { os.Exit(kafkabrokertest.Run(m)) }
//
//	func TestPublish(t *testing.T) {
//		broker := kafkabrokertest.Shared(t)
//		topic := kafkabrokertest.Topic(t, broker, "publish", 3, nil)
//		...
//	}
//
// or one of its own, for a test that kills it, freezes it or wants it configured
// otherwise: Start.
//
// A test that fails prints the end of the broker's log.
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

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
)

const logLines = 30

// shared is the broker of this test binary, which its first test starts.
var shared struct {
	once   sync.Once
	broker *kafkabroker.Broker
	err    error
}

// Shared returns the broker that all tests of this test binary share, and
// starts it if t is the first to want it. It has a plaintext listener only, and
// is nobody's to kill, stop or freeze.
func Shared(t testing.TB) *kafkabroker.Broker {
	t.Helper()
	shared.once.Do(func() {
		shared.broker, shared.err = kafkabroker.Start(context.Background(), kafkabroker.Options{
			// Nobody waits for it to start again, so its session may outlast a machine that
			// is busy for minutes. A broker whose session has expired is fenced, and refuses
			// new topics with INVALID_REPLICATION_FACTOR.
			Properties: map[string]string{"broker.session.timeout.ms": "300000"},
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	showLog(t, shared.broker)
	return shared.broker
}

// Run runs the tests, closes the shared broker if one of them has started it,
// and returns the code to exit with. Without it the broker ends by itself a
// moment after the process.
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

// A Broker is a broker of one test. What fails, fails the test.
type Broker struct {
	*kafkabroker.Broker

	t testing.TB
}

// Start starts a broker for t alone, which is closed at t's end.
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

// Start starts the broker again, with its ports and data.
func (b *Broker) Start() {
	b.t.Helper()
	b.must(b.Broker.Start(b.t.Context()))
}

// Stop ends the broker in an orderly way.
func (b *Broker) Stop() {
	b.t.Helper()
	b.must(b.Broker.Stop())
}

// Kill ends the broker with kill -9.
func (b *Broker) Kill() {
	b.t.Helper()
	b.must(b.Broker.Kill())
}

// Freeze makes the broker stand still.
func (b *Broker) Freeze() {
	b.t.Helper()
	b.must(b.Broker.Freeze())
}

// Thaw lets a frozen broker go on.
func (b *Broker) Thaw() {
	b.t.Helper()
	b.must(b.Broker.Thaw())
}

// Forget drops all data of a broker that does not run.
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

// TopicName returns a topic name that begins with prefix and that no other call
// returns, so that a test that runs again on the shared broker starts with an empty
// topic. The name is lowercase. A prefix can be a test's name: each character that
// topic names do not allow becomes a hyphen.
func TopicName(prefix string) string {
	return unnamable.ReplaceAllString(strings.ToLower(prefix), "-") + "-" + strings.ToLower(rand.Text()[:10])
}

// unnamable matches what Kafka does not allow in a topic name.
var unnamable = regexp.MustCompile(`[^a-z0-9._-]`)

// Topic creates a topic named by TopicName, and returns the name. The topic stays
// when t ends. Without config, records do not expire: 30 seconds after its start, a broker
// deletes what is older than its retention, and tests write fixed timestamps.
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
