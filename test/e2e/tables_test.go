package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// tableSample is a program in examples that keeps a local table of one resource.
type tableSample struct {
	command []string

	// rows returns one line for each object of a cluster. A line contains the namespace, the name,
	// the UID, the version, and whether the object is truncated, separated by tabs. rows returns an
	// error if the sample doesn't report a complete table.
	rows func(file, cluster string) (string, error)

	// builds is the message that the sample logs when it builds the table from the start instead of
	// continuing.
	builds string

	binary bool // the sample reads only objects in binary mode

	// holds opens the table and keeps a query open until the test ends. It can be nil.
	holds func(t *testing.T, file string)
}

// tableBus is the bus that a sample reads, and the faults that a test causes there.
type tableBus struct {
	set     map[string]string                  // variables of a forwarder
	url     string                             // of the NATS server, "" for Kafka
	sample  []string                           // environment of the sample
	litters func(t *testing.T, m foreignEvent) // writes a foreign event
	breaks  func()                             // drops all connections, if possible
	forgets func(t *testing.T)                 // deletes all events
}

// foreignEvent is a message for the key of an object. It has the headers of an event unless plain
// is true.
type foreignEvent struct {
	key, data string
	plain     bool
}

// headers returns the headers of an event. The names of attributes begin with the prefix.
func (e foreignEvent) headers(prefix string) map[string]string {
	if e.plain {
		return nil
	}
	return map[string]string{
		"content-type": "application/json", prefix + "id": "foreign", prefix + "source": "/kubernetes/" + clusterName, prefix + "specversion": "1.0",
		prefix + "type": "io.kuberelay.object.created", prefix + "time": "2026-03-01T12:00:00Z", prefix + "partitionkey": e.key,
	}
}

// wrongData lists event data that isn't the data of any object.
var wrongData = []string{
	`{"metadata":{"name":{"x":1},"uid":"u","resourceVersion":"1"}}`,
	`{"metadata":{"name":["x"],"uid":"u","resourceVersion":"1"}}`,
	`{"metadata":{"name":"x","uid":123456789012345678901234567890,"resourceVersion":"1"}}`,
	`{"metadata":{"name":"x","namespace":{"x":1},"uid":"u","resourceVersion":"1"}}`,
	`{"metadata":{"uid":"u","resourceVersion":"1"}}`,
	`{"metadata":"x"}`, `["x"]`, `null`, `{`,
}

// natsToken is the token of the NATS server.
const natsToken = "the-token-of-the-server"

func tableOnNATS(t *testing.T) tableBus {
	t.Helper()
	server := natstest.StartProcess(t, fmt.Sprintf("authorization: {token: %q}", natsToken))
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(natsToken), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(t *testing.T, use func(jetstream.JetStream) error) {
		t.Helper()
		nc, err := natsgo.Connect(server.URL, natsgo.Token(natsToken), natsgo.Timeout(limit))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
		if err == nil {
			err = use(js)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return tableBus{
		set: map[string]string{"NATS_TOKEN_FILE": file}, url: server.URL, sample: []string{"NATS_URL=" + server.URL, "NATS_TOKEN=" + natsToken},
		litters: func(t *testing.T, e foreignEvent) {
			t.Helper()
			m := natsgo.NewMsg("kuberelay." + strings.ReplaceAll(e.key, "/", "."))
			m.Data = []byte(e.data)
			for name, value := range e.headers("ce-") {
				m.Header.Set(name, value)
			}
			with(t, func(js jetstream.JetStream) error {
				_, err := js.PublishMsg(t.Context(), m)
				return err
			})
		},
		breaks: func() {
			server.Kill()
			server.Start()
		},
		forgets: func(t *testing.T) {
			t.Helper()
			with(t, func(js jetstream.JetStream) error { return js.DeleteStream(t.Context(), "KUBERELAY") })
		},
	}
}

// checkCredentials verifies that the sample exits with an error if the URL contains credentials,
// and that it doesn't print the credentials.
func checkCredentials(t *testing.T, command ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a sample that accepts the URL waits for the server
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "NATS_URL=nats://" + natsToken + "@127.0.0.1:1", "TABLE=" + filepath.Join(t.TempDir(), "table")}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "set NATS_TOKEN") || strings.Contains(string(out), natsToken) {
		t.Errorf("with credentials in the URL, the sample ends with %v\n%s", err, out)
	}
}

// checkTable verifies that a sample's table equals the list from the API server in each of these
// phases: after the forwarder was killed, after the sample was killed, after the bus lost
// everything, with another cluster on the bus, and after objects were deselected. An object is
// deleted in each of the first three phases. The sample must skip messages that aren't events of an
// object.
func checkTable(t *testing.T, sample tableSample, bus tableBus) {
	t.Helper()
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	file := filepath.Join(t.TempDir(), "table")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	t.Cleanup(func() {
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the log of the sample:\n%s", text)
		}
	})
	run := func() (stop func()) {
		return process(t, log, append(bus.sample, "RESOURCE=configmaps", "TABLE="+file), sample.command...)
	}
	logged := func(text string) int {
		all, err := os.ReadFile(log.Name())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(all), text)
	}
	equal := func(when, of string, selected func(*unstructured.Unstructured) bool) {
		t.Helper()
		poll.Try(t, "the table is that of the cluster "+when, func(ctx context.Context) error {
			list, err := u.of(configMaps, namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			var lines []string
			for n := range list.Items {
				if o := &list.Items[n]; selected(o) {
					lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%t\n", namespace, o.GetName(), o.GetUID(), o.GetResourceVersion(), o.GetName() == "large"))
				}
			}
			slices.Sort(lines)
			got, err := sample.rows(file, of)
			if want := strings.Join(lines, ""); err != nil || got != want {
				return fmt.Errorf("the table is\n%swant\n%s%w", got, want, err)
			}
			return nil
		})
	}
	all := func(*unstructured.Unstructured) bool { return true }
	forwarderOf := func(set map[string]string) *forwarder {
		every := map[string]string{"RESOURCES": "configmaps,services", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "1s"}
		return newForwarder(t, cp.Kubeconfig(), bus.url, merged(every, merged(bus.set, set)))
	}

	for _, name := range []string{"kept", "changed", "deleted", "deleted-later", "deleted-last"} {
		u.create(configMaps, namespace, configMap(name, "1"))
	}
	u.create(configMaps, namespace, configMap("large", strings.Repeat(`\x01`, 250_000))) // JSON encodes each character U+0001 in six bytes
	stop := run()
	poll.Try(t, "the sample waits for the bus", func(context.Context) error {
		if logged("waiting") == 0 {
			return errors.New("it does not say so")
		}
		return nil
	})
	f := forwarderOf(nil)
	f.start().idle()
	equal("after the start", clusterName, all)

	if sample.holds != nil {
		sample.holds(t, file)
	}
	litter := clusterName + "/core/configmaps/" + namespace + "/litter"
	bus.litters(t, foreignEvent{key: litter, data: "not an event", plain: true})
	for n, data := range wrongData {
		bus.litters(t, foreignEvent{key: fmt.Sprint(litter, n), data: data})
	}
	poll.Try(t, "the sample skips what isn't an event of an object", func(context.Context) error {
		if n := logged("skips"); n != 1+len(wrongData) {
			return fmt.Errorf("the sample has skipped %d messages, want %d", n, 1+len(wrongData))
		}
		return nil
	})
	// A cluster that has objects but no consistency point isn't complete. This happens if its
	// forwarder is retired. The other clusters stay complete.
	retired := `{"metadata":{"namespace":"n","name":"x","uid":"u","resourceVersion":"1"}}`
	bus.litters(t, foreignEvent{key: "retired/core/configmaps/n/x", data: retired})
	u.create(configMaps, namespace, configMap("after-litter", "1"))
	equal("after events that aren't objects", clusterName, all)
	if rows, err := sample.rows(file, "retired"); err == nil && rows != "" {
		t.Errorf("a cluster that isn't complete has rows: %s", rows)
	}

	f.kill()
	if bus.breaks != nil {
		bus.breaks()
	}
	u.label(configMaps, namespace, "changed", "yes")
	u.delete(configMaps, namespace, "deleted")
	f.start().idle()
	equal("after the forwarder and the connection were killed", clusterName, all)

	stop()
	u.delete(configMaps, namespace, "deleted-later")
	u.create(configMaps, namespace, configMap("new", "1"))
	f.idle()
	run()
	equal("after the sample was killed", clusterName, all)
	if n := logged(sample.builds); sample.builds != "" && n != 1 {
		t.Errorf("the table was built %d times, want once", n)
	}

	f.kill()
	bus.forgets(t)
	u.delete(configMaps, namespace, "deleted-last")
	f.start().idle()
	other := forwarderOf(map[string]string{"CLUSTER_NAME": "other"})
	other.start().idle()
	equal("after the bus lost everything", clusterName, all)
	equal("of another name", "other", all)
	f.stop()

	last := map[string]string{"LABEL_SELECTOR": "changed", "ON_DESELECT": "publish", "DATA": "change"}
	if !sample.binary {
		last["CONTENT_MODE"] = "structured"
	}
	if bus.url == "" {
		last["KAFKA_COMPRESSION"] = "zstd"
	}
	f = forwarderOf(last)
	f.start().idle()
	u.label(configMaps, namespace, "changed", "again")
	equal("with objects that are no longer selected", clusterName, func(o *unstructured.Unstructured) bool { return o.GetLabels()["changed"] != "" })
	equal("of another name, at the end", "other", all)
	f.stop()
	other.stop()
	if logged(natsToken) > 0 {
		t.Error("the sample logs the token")
	}
}

// fileRows returns a cluster's rows from a table in a text file. The first column is the cluster.
func fileRows(file, cluster string) (string, error) {
	text, err := os.ReadFile(file)
	var rows []string
	for line := range strings.Lines(string(text)) {
		if row, is := strings.CutPrefix(line, cluster+"\t"); is {
			rows = append(rows, row)
		}
	}
	slices.Sort(rows)
	return strings.Join(rows, ""), err
}

// TestTableKeyValue_Slow verifies the table of examples/nats-kv.
func TestTableKeyValue_Slow(t *testing.T) {
	program := buildProgram(t, "../../examples/nats-kv")
	checkCredentials(t, program)
	checkTable(t, tableSample{[]string{program}, fileRows, "", true, nil}, tableOnNATS(t))
}
