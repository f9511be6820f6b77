package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// documentedPermissions returns the code block below a heading of docs/permissions.md.
func documentedPermissions(t *testing.T, heading string) string {
	t.Helper()
	_, section, ok := strings.Cut(readFile(t, filepath.Join("..", "..", "docs", "permissions.md")), "# "+heading+"\n")
	_, code, found := strings.Cut(section, "```text\n")
	code, _, ended := strings.Cut(code, "```\n")
	if !ok || !found || !ended {
		t.Fatalf("docs/permissions.md has no code below %q", heading)
	}
	return code
}

// TestPermissionsNATS_Slow verifies that the permissions in docs/permissions.md suffice for readers and
// for a forwarder that publishes, purges and restarts. It also verifies that readers can't write.
func TestPermissionsNATS_Slow(t *testing.T) {
	configuration := strings.ReplaceAll(documentedPermissions(t, "NATS"), "prod-eu1", clusterName)
	bus := natstest.StartProcess(t, configuration)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	as := func(user, password string) *forwarder {
		file := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
		return newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{
			"RESOURCES": "configmaps", "NAMESPACES": namespace, "DELETE_RETENTION": "1s", "CHECKPOINT_REFRESH": "1s",
			"NATS_USER": user, "NATS_PASSWORD_FILE": file,
		})
	}
	f, reader := as("forwarder", "change-me"), as("reader", "change-me-too")
	u.create(configMaps, namespace, configMap("a", "1"))
	u.create(configMaps, namespace, configMap("b", "1"))
	f.start().idle()
	u.delete(configMaps, namespace, "b")

	nc, err := nats.Connect(bus.URL, nats.UserInfo("reader", "change-me-too"), nats.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	subject := func(name string) string {
		return fmt.Sprintf("kuberelay.%s.core.configmaps.%s.%s", clusterName, namespace, name)
	}
	poll.Try(t, "the deleted object is purged", func(ctx context.Context) error {
		if _, err := stream.GetLastMsgForSubject(ctx, subject("b")); !errors.Is(err, jetstream.ErrMsgNotFound) {
			return fmt.Errorf("its last message: %w", err)
		}
		return nil
	})
	f.idle()
	if code, stdout, stderr := reader.run("verify", settle); code != 0 {
		t.Errorf("verify as the reader ended with %d:\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := reader.run("tail", "--last", "--diff", "--count=1", "--resource=configmaps"); code != 0 || strings.Contains(stderr, "ermission") {
		t.Errorf("tail as the reader ended with %d:\n%s%s", code, stdout, stderr)
	}
	f.stop()
	f.start().idle()
	f.stop()

	for to, write := range map[string]func() error{
		subject("a"):                      func() error { _, err := nc.Request(subject("a"), []byte("{}"), time.Second); return err },
		"$JS.API.STREAM.PURGE.KUBERELAY":  func() error { return stream.Purge(bounded(t)) },
		"$JS.API.STREAM.DELETE.KUBERELAY": func() error { return js.DeleteStream(bounded(t), "KUBERELAY") },
	} {
		if err := write(); err == nil {
			t.Errorf("the reader may publish to %s", to)
		}
		poll.Try(t, "the server says that the reader may not publish to "+to, func(context.Context) error { // a denied request gets no response
			if last := nc.LastError(); !errors.Is(last, nats.ErrPermissionViolation) || !strings.Contains(last.Error(), to) {
				return fmt.Errorf("it says: %w", last)
			}
			return nil
		})
	}
}

// TestPermissionsOfOneCluster verifies that the account in docs/permissions.md for a reader of one
// cluster suffices to read the events of the cluster, and gives access to no other events.
func TestPermissionsOfOneCluster(t *testing.T) {
	accounts := strings.Replace(documentedPermissions(t, "NATS"), "kuberelay.prod-eu1.>", "kuberelay.>", 1) // the forwarder writes the other cluster too
	end := strings.LastIndex(accounts, "}")
	bus := natstest.StartProcess(t, accounts[:end]+documentedPermissions(t, "A reader of one cluster")+accounts[end:])
	as := func(user, password string, o ...nats.Option) (*nats.Conn, jetstream.JetStream) {
		nc, err := nats.Connect(bus.URL, append(o, nats.UserInfo(user, password), nats.Timeout(limit))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
		if err != nil {
			t.Fatal(err)
		}
		return nc, js
	}
	_, forwarder := as("forwarder", "change-me", nats.CustomInboxPrefix("_INBOX.kuberelay"))
	nc, reader := as("team-a", "change-me-four")
	if _, err := forwarder.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KUBERELAY", Subjects: []string{"kuberelay.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := forwarder.CreateConsumer(t.Context(), "KUBERELAY", jetstream.ConsumerConfig{Name: "others", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	direct, err := nc.SubscribeSync("kuberelay.>")
	if err != nil {
		t.Fatal(err)
	}

	consumer, err := reader.CreateOrUpdateConsumer(t.Context(), "KUBERELAY", jetstream.ConsumerConfig{
		Durable: "team-a", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "kuberelay.prod-eu1.core.>",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"kuberelay.dev.core.nodes._.a", "kuberelay.prod-eu1.core.nodes._.a", "kuberelay.dev.core.nodes._.b", "kuberelay.prod-eu1.core.nodes._.b"} {
		if _, err := forwarder.Publish(t.Context(), subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"kuberelay.prod-eu1.core.nodes._.a", "kuberelay.prod-eu1.core.nodes._.b"} {
		msg, err := consumer.Next(jetstream.FetchMaxWait(limit))
		if err != nil {
			t.Fatal(err)
		}
		if msg.Subject() != want {
			t.Errorf("the reader received %s, want %s", msg.Subject(), want)
		}
		if err := msg.DoubleAck(t.Context()); err != nil {
			t.Errorf("acknowledge %s: %v", want, err)
		}
	}
	if info, err := consumer.Info(t.Context()); err != nil || info.NumPending != 0 || info.NumAckPending != 0 {
		t.Errorf("the consumer has %+v, %v, want nothing pending", info, err)
	}
	if n, _, err := direct.Pending(); err != nil || n != 0 {
		t.Errorf("without a consumer, the reader received %d messages, %v, want none", n, err)
	}
	if err := direct.Unsubscribe(); err != nil {
		t.Fatal(err)
	}

	const create = "$JS.API.CONSUMER.CREATE.KUBERELAY."
	config := func(filter string) string {
		return `{"stream_name": "KUBERELAY", "config": {"name": "team-a", "ack_policy": "explicit", ` + filter + `}}`
	}
	for _, request := range []struct{ subject, data, want string }{
		{create + "team-a.kuberelay.dev.>", config(`"filter_subject": "kuberelay.dev.>"`), "no responders"},
		{create + "team-a", config(`"deliver_policy": "all"`), "no responders"},
		{create + "team-a.kuberelay.prod-eu1.>", config(`"filter_subject": "kuberelay.>"`), "filter"},
		{create + "team-a.kuberelay.prod-eu1.>", config(`"filter_subjects": ["kuberelay.prod-eu1.>", "kuberelay.dev.>"]`), "filter"},
		{create + "others.kuberelay.prod-eu1.>", config(`"filter_subject": "kuberelay.prod-eu1.>"`), "no responders"},
		{"$JS.API.CONSUMER.MSG.NEXT.KUBERELAY.others", `{"batch": 1, "no_wait": true}`, "no responders"},
		{"$JS.API.CONSUMER.DELETE.KUBERELAY.others", "", "no responders"},
		{"$JS.API.STREAM.MSG.GET.KUBERELAY", `{"seq": 1}`, "no responders"},
		{"$JS.API.STREAM.INFO.KUBERELAY", `{"subjects_filter": ">"}`, "no responders"},
	} {
		got := ""
		if msg, err := nc.Request(request.subject, []byte(request.data), limit); err != nil {
			got = err.Error()
		} else {
			got = string(msg.Data)
		}
		if !strings.Contains(got, request.want) {
			t.Errorf("request to %s with %s: got %s, want %q", request.subject, request.data, got, request.want)
		}
	}
	if _, err := nc.Request("kuberelay.prod-eu1.core.nodes._.a", []byte("forged"), limit); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("the reader may write an event: %v", err)
	}
}

// TestBuiltInToken verifies that commands with the forwarder's data directory read the built-in server
// with the generated token. Commands with another data directory are refused.
func TestBuiltInToken(t *testing.T) {
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	address, err := harness.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	in := func(dataDir string) *forwarder {
		return newForwarder(t, cp.Kubeconfig(), "", map[string]string{
			"RESOURCES": "configmaps", "NAMESPACES": namespace, "NATS_LISTEN": address, "DATA_DIR": dataDir,
		})
	}
	dir := t.TempDir()
	f, other := in(dir), in(t.TempDir())
	f.start().idle()
	if code, stdout, stderr := f.run("verify", settle); code != 0 {
		t.Errorf("verify ended with %d:\n%s%s", code, stdout, stderr)
	}
	if code, _, stderr := f.run("tail", "--last", "--count=1"); code != 0 {
		t.Errorf("tail ended with %d: %s", code, stderr)
	}
	for _, args := range [][]string{{"verify", settle}, {"tail", "--last", "--count=1"}} {
		code, stdout, stderr := other.run(args...)
		if code != 2 || !strings.Contains(stderr, "KUBERELAY_DATA_DIR") || !strings.Contains(stderr, "KUBERELAY_NATS_TOKEN_FILE") {
			t.Errorf("%s of another user ended with %d:\n%s%s", args[0], code, stdout, stderr)
		}
	}
	f.stop()
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}
