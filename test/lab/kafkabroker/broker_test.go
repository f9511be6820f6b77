package kafkabroker_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/kuberelay/kuberelay/test/lab/childprocess/childprocesstest"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

func TestMain(m *testing.M) {
	childprocesstest.RunIfChild(startChild)
	os.Exit(m.Run())
}

// produce produces a message to partition 0 over new connections.
func produce(ctx context.Context, addr, topic, value string, transport *kafka.Transport) error {
	if transport == nil {
		transport = new(kafka.Transport)
	}
	defer transport.CloseIdleConnections()
	transport.DialTimeout = time.Minute // includes the login, for which a busy broker can need long
	client := &kafka.Client{Addr: kafka.TCP(addr), Transport: transport}
	response, err := client.Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte(value))}),
	})
	if err != nil {
		return err
	}
	return response.Error
}

// values returns the values of all messages in partition 0.
func values(t *testing.T, addr, topic string) []string {
	t.Helper()
	transport := new(kafka.Transport)
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(addr), Transport: transport}
	response, err := client.Fetch(t.Context(), &kafka.FetchRequest{Topic: topic, MaxBytes: 1 << 20})
	if err == nil {
		err = response.Error
	}
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		record, err := response.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		value, err := kafka.ReadAll(record.Value)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(value))
	}
}

func TestLives_Slow(t *testing.T) {
	b := kafkabrokertest.Start(t, kafkabroker.Options{Listeners: []kafkabroker.Listener{kafkabroker.SASLPlaintext},
		Users: map[string]string{"alice": "secret"}})
	if _, err := os.Stat(b.Classes()); err != nil {
		t.Errorf("the archive of classes was not created: %v", err)
	}
	topic := kafkabrokertest.Topic(t, b, "lives", 1, nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(produce(t.Context(), b.Addr(), topic, "kept", nil))
	addr, sasl := b.Addr(), b.AddrOf(kafkabroker.SASLPlaintext)

	for name, end := range map[string]func(){"kill": b.Kill, "stop": b.Stop} {
		t.Run(name+" and start keep ports and data", func(t *testing.T) {
			end()
			end() // ending the broker again has no effect
			if err := produce(t.Context(), addr, topic, "lost", nil); err == nil {
				t.Error("a broker that is not running responds")
			}
			b.Start()
			if b.Addr() != addr || b.AddrOf(kafkabroker.SASLPlaintext) != sasl {
				t.Errorf("got other ports, %s and %s, want %s and %s", b.Addr(), b.AddrOf(kafkabroker.SASLPlaintext), addr, sasl)
			}
			if got := values(t, addr, topic); len(got) != 1 || got[0] != "kept" {
				t.Errorf("got messages %q, want only %q", got, "kept")
			}
			if err := b.Broker.Start(t.Context()); err == nil {
				t.Error("Start succeeds although the broker is running")
			}
		})
	}

	t.Run("freeze and thaw", func(t *testing.T) {
		b.Freeze()
		b.Freeze() // a second Freeze has no effect
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := produce(ctx, addr, topic, "frozen", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a frozen broker: got error %v, want %v", err, context.DeadlineExceeded)
		}
		b.Thaw()
		// On a busy machine, the freeze can outlast the broker's session. The partition then has no
		// leader for a moment.
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := produce(ctx, addr, topic, "thawed", nil)
		for errors.Is(err, protocol.ErrNoLeader) || errors.Is(err, kafka.NotLeaderForPartition) {
			err = produce(ctx, addr, topic, "thawed", nil)
		}
		must(err)
		b.Freeze()
		b.Stop()
		b.Start()
	})

	t.Run("forget", func(t *testing.T) {
		if err := b.Broker.Forget(); err == nil {
			t.Error("Forget succeeds although the broker is running")
		}
		b.Kill()
		b.Forget()
		b.Start()
		must(b.CreateTopic(t.Context(), topic, 1, nil))
		if got := values(t, addr, topic); len(got) != 0 {
			t.Errorf("got messages %q of a topic with a name used before, want none", got)
		}
		if err := b.CreateTopic(t.Context(), topic, 1, nil); !errors.Is(err, kafka.TopicAlreadyExists) {
			t.Errorf("create the topic again: got error %v, want %v", err, kafka.TopicAlreadyExists)
		}
	})

	t.Run("close", func(t *testing.T) {
		must(b.Close())
		must(b.Close())
		if err := b.Broker.Start(t.Context()); err == nil {
			t.Error("Start succeeds although the broker is closed")
		}
		if _, err := os.Stat(b.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the temporary directory: got error %v, want %v", err, os.ErrNotExist)
		}
	})
}

func TestDirOutlivesBroker(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with a strange, strange=näme")
	first := kafkabrokertest.Start(t, kafkabroker.Options{Dir: dir})
	topic := kafkabrokertest.Topic(t, first, "outlives", 1, map[string]string{"cleanup.policy": "delete"})
	if err := produce(t.Context(), first.Addr(), topic, "kept", nil); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := kafkabrokertest.Start(t, kafkabroker.Options{Dir: dir})
	if got := values(t, second.Addr(), topic); len(got) != 1 || got[0] != "kept" {
		t.Errorf("got messages %q, want only %q", got, "kept")
	}
}

func TestStartErrorShowsBrokerOutput(t *testing.T) {
	dir := t.TempDir()
	_, err := kafkabroker.Start(t.Context(), kafkabroker.Options{
		Dir: dir, Properties: map[string]string{"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:NONSENSE"}})
	if err == nil || !strings.Contains(err.Error(), "NONSENSE") {
		t.Errorf("got error %v, want one with the tool's message about NONSENSE", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("Close removed a directory that it did not create: %v", err)
	}
	// The command that formats the data directory doesn't detect this error. The broker does, when it
	// starts.
	_, err = kafkabroker.Start(t.Context(), kafkabroker.Options{
		Properties: map[string]string{"authorizer.class.name": "no.such.Authorizer"}})
	if err == nil || !strings.Contains(err.Error(), "no.such.Authorizer") {
		t.Errorf("got error %v, want one with the end of the log", err)
	}
}

func TestStartTakesOtherPorts_Slow(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	b, holds, err := kafkabroker.StartOnTakenPort(t.Context(), kafkabroker.Options{}, taken)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if holds != 2 || b.Addr() == taken.Addr().String() {
		t.Errorf("runs on %s at try %d, want another port than %s at try 2", b.Addr(), holds, taken.Addr())
	}
}

// TestStartWithoutClasses_Slow verifies that a broker starts with a broken or missing class archive. The
// archive only makes the start faster.
func TestStartWithoutClasses_Slow(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.jsa")
	if err := os.WriteFile(broken, []byte("not an archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, archive := range []string{broken, broken + ".missing"} {
		b, err := kafkabroker.StartWithClasses(t.Context(), archive)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOptions(t *testing.T) {
	users := map[string]string{"alice": "secret"}
	for _, test := range []struct {
		name string
		opts kafkabroker.Options
		want string
	}{
		{"listener unknown", kafkabroker.Options{Listeners: []kafkabroker.Listener{"HTTP"}}, `"HTTP"`},
		{"listener twice", kafkabroker.Options{Users: users,
			Listeners: []kafkabroker.Listener{kafkabroker.SASLPlaintext, kafkabroker.SASLPlaintext}}, "twice"},
		{"no certificate", kafkabroker.Options{Listeners: []kafkabroker.Listener{kafkabroker.SSL}}, "TLS.CertFile"},
		{"no users", kafkabroker.Options{Listeners: []kafkabroker.Listener{kafkabroker.SASLPlaintext}}, "Users"},
		{"node id", kafkabroker.Options{NodeID: 2}, "node id 2"},
		{"password", kafkabroker.Options{Users: map[string]string{"alice": `a"b`}}, `user "alice"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := kafkabroker.Start(t.Context(), test.opts); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %s", err, test.want)
			}
		})
	}
}
