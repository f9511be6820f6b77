package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// canaries maps descriptions to secret values that must not leak.
type canaries map[string]string

// add creates a canary with this description.
func (c canaries) add(what string) string {
	c[what] = "Canary" + rand.Text()[:16]
	return c[what]
}

// TestCanaryEncodings verifies that the search finds a value in every encoding, at every offset, and
// before any other text.
func TestCanaryEncodings(t *testing.T) {
	const value = "Canary/one+two=three"
	twice := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, before := range []string{"", "a", "ab", "abc"} {
		for _, text := range []string{
			before + value + "z", twice(before + value + "z"), twice(before + twice(value) + "z"),
			base64.RawURLEncoding.EncodeToString([]byte(before + value)), url.QueryEscape(value), hex.EncodeToString([]byte(value)),
		} {
			found := false
			for _, needle := range needles(value) {
				found = found || strings.Contains(text, needle)
			}
			if !found {
				t.Errorf("%q is not found in %q", value, text)
			}
		}
	}
}

// needles returns the value in every encoding that the search looks for.
func needles(value string) map[string]string {
	all := map[string]string{"plain": value, "in a URL": url.QueryEscape(value), "in a path": url.PathEscape(value), "in hex": hex.EncodeToString([]byte(value))}
	// The data of a Secret is Base64, and so is the replacement of a secret value. A value can
	// therefore be encoded twice.
	for times, text := range []string{value, base64.StdEncoding.EncodeToString([]byte(value))} {
		for shift := range 3 { // offset in the encoded text
			encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + strings.TrimRight(text, "=")))
			from := []int{0, 2, 3}[shift] // cut the characters that depend on neighboring bytes
			encoded = encoded[from : len(encoded)-len(encoded)%4]
			all[fmt.Sprintf("in Base64, %d times, shifted by %d", times+1, shift)] = encoded
			all[fmt.Sprintf("in Base64 of URLs, %d times, shifted by %d", times+1, shift)] = strings.NewReplacer("+", "-", "/", "_").Replace(encoded)
		}
	}
	return all
}

// search fails the test for every canary that the content contains.
func (c canaries) search(t *testing.T, where string, content []byte) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(c)) {
		for how, needle := range needles(c[what]) {
			if at := bytes.Index(content, []byte(needle)); at >= 0 {
				t.Errorf("%s is in %s, %s: …%q…", what, where, how, content[max(0, at-200):min(len(content), at+80)])
			}
		}
	}
}

// searchFiles searches all files below the directories. It fails the test if no file contains the
// visible text, because the search would then prove nothing.
func (c canaries) searchFiles(t *testing.T, where, visible string, dirs ...string) {
	t.Helper()
	seen := false
	look := func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen = seen || bytes.Contains(content, []byte(visible))
		c.search(t, where+": "+path, content)
		return nil
	}
	for _, dir := range dirs {
		if err := filepath.WalkDir(dir, look); err != nil {
			t.Fatal(err)
		}
	}
	if !seen {
		t.Errorf("%s has no %q: the search read nothing of the bus", where, visible)
	}
}

// searchBus searches every message on the bus. It fails the test if no message contains the visible
// text.
func (c canaries) searchBus(t *testing.T, where string, recorder harness.Recorder, visible string) {
	t.Helper()
	if err := recorder.CatchUp(t.Context(), limit); err != nil {
		t.Fatal(err)
	}
	all, _, err := recorder.All()
	if err != nil {
		t.Fatal(err)
	}
	var content bytes.Buffer
	for _, r := range all {
		fmt.Fprintf(&content, "%s %v %s\n", r.Subject, r.Attributes, r.Body)
	}
	if !strings.Contains(content.String(), visible) {
		t.Errorf("%s has no %q: the search read nothing of it", where, visible)
	}
	c.search(t, where, content.Bytes())
}

// secretManifest returns a Secret with a canary in every place that can hold a value, and a visible
// label.
func secretManifest(c canaries, name, visible string) string {
	applied := c.add(name + ": last-applied-configuration")
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata:
  name: %[1]s
  labels: {pw: %[5]s, app.kubernetes.io/version: %[2]s}
  annotations:
    note: was %[5]s
    kubectl.kubernetes.io/last-applied-configuration: '{"kind":"Secret","stringData":{"a":"%[3]s"},"data":{"b":"%[4]s"}}'
data: {encoded: %[6]s}
stringData: {plain: %[7]s}`, name, visible, applied, base64.StdEncoding.EncodeToString([]byte(applied)), c.add(name+": metadata"),
		base64.StdEncoding.EncodeToString([]byte(c.add(name+": data"))), c.add(name+": stringData"))
}

// hidden is a forwarder that watches Secrets. Its own credentials are canaries.
type hidden struct {
	*forwarder
	canaries  canaries
	user      *user
	namespace string

	token      *volume
	kubeconfig string // path of the kubeconfig
}

// newHidden returns a forwarder for the bus in set. The forwarder isn't started.
func newHidden(t *testing.T, cp *controlplane.ControlPlane, c canaries, natsURL string, set map[string]string) *hidden {
	t.Helper()
	h := &hidden{canaries: c, user: newUser(t, cp)}
	h.namespace = quietNamespace(t, h.user)
	admin, err := clientcmd.LoadFromFile(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range admin.AuthInfos {
		c["the API server's token"] = info.Token
	}
	h.token = newVolume(t, map[string]string{"token": c["the API server's token"], "key": c.add("the redaction key")})
	all := map[string]string{
		"RESOURCES": "secrets,configmaps", "NAMESPACES": h.namespace, "REDACTION_KEY_FILE": h.token.path("key"),
		"LOG_LEVEL": "debug", "NATS_HISTORY": "100",
	}
	maps.Copy(all, set)
	h.kubeconfig = tokenKubeconfig(t, cp, h.token.path("token"))
	h.forwarder = newForwarder(t, h.kubeconfig, natsURL, all)
	return h
}

var secretsResource = gvr("", "v1", "secrets")

// live publishes the events of several Secrets. Some exist before the forwarder starts. They are
// created, changed, recreated and deleted while it runs, and changed and deleted while it is down.
func (h *hidden) live(visible string) {
	h.t.Helper()
	u, c := h.user, h.canaries
	for _, name := range []string{"early", "gone"} {
		u.create(secretsResource, h.namespace, secretManifest(c, name, visible))
	}
	h.start().idle()
	for _, name := range []string{"late", "deleted"} {
		u.create(secretsResource, h.namespace, secretManifest(c, name, visible))
	}
	h.change("early")
	u.delete(secretsResource, h.namespace, "deleted")
	u.create(secretsResource, h.namespace, secretManifest(c, "deleted", visible)) // a new object
	h.idle()
	h.kill()
	u.delete(secretsResource, h.namespace, "gone")
	h.change("late")
	h.start().idle()
}

// change gives a Secret a new canary.
func (h *hidden) change(name string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), limit)
	defer cancel()
	client := h.user.of(secretsResource, h.namespace)
	o, err := client.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		o.Object["stringData"] = map[string]any{"plain": h.canaries.add(name + ": stringData, changed")}
		_, err = client.Update(ctx, o, metav1.UpdateOptions{})
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// searchAnswers searches everything that the forwarder serves and the output of its commands.
func (h *hidden) searchAnswers(when string) {
	h.t.Helper()
	for _, path := range []string{"/metrics", "/readyz", "/readyz?verbose", "/healthz", "/api/v1/status", "/api/v1/trace?resource=secrets&name=early&namespace=" + h.namespace} {
		_, body, err := h.Get(h.t.Context(), path)
		if err != nil {
			h.t.Fatal(err)
		}
		h.canaries.search(h.t, path+" "+when, []byte(body))
	}
	for _, command := range []string{
		"config", "config -o json", "status", "resources", "resources -o json", "resources --all -o json", "resources secrets", "verify --settle=1s", "verify --settle=1s -o json",
		"check", "schema secrets", "get secrets -o json -n " + h.namespace, "forget --dry-run --cluster=" + clusterName,
		"trace secret/early -n " + h.namespace, "trace secret/deleted -o json -n " + h.namespace, "trace secret/gone -o json --consumer=none -n " + h.namespace,
	} {
		h.searchCommand(when, strings.Fields(command)...)
	}
}

// searchCommand runs a command, which may fail, and searches its output.
func (h *hidden) searchCommand(when string, args ...string) (code int, output string) {
	h.t.Helper()
	code, stdout, stderr := h.run(args...)
	if stdout+stderr == "" {
		h.t.Errorf("%v says nothing %s", args, when)
	}
	h.canaries.search(h.t, fmt.Sprintf("'%s' %s", strings.Join(args, " "), when), []byte(stdout+stderr))
	return code, stdout + stderr
}

// searchRest searches the remaining output: events that tail prints, a difference that verify finds,
// errors after the API server refuses the credentials, the whole log, and the output of forget, whose
// deletes the caller searches for.
func (h *hidden) searchRest(visible string) {
	h.t.Helper()
	if _, out := h.searchCommand("while it runs", "tail", "--last", "--count=3", "-o", "json", "--resource=secrets", "--cluster=*"); !strings.Contains(out, visible) {
		h.t.Errorf("tail shows no %q: the search read nothing:\n%s", visible, out)
	}
	h.searchCommand("while it runs", "tail", "--last", "--count=3", "--resource=secrets", "--cluster=*")
	if _, out := h.searchCommand("while it runs", "get", "secrets", "-o", "yaml", "-n", h.namespace); !strings.Contains(out, visible) {
		h.t.Errorf("get shows no %q: the search read nothing:\n%s", visible, out)
	}

	h.token.put(map[string]string{"token": h.canaries.add("a token that is refused")})
	h.await("the API server refuses", func(context.Context) error {
		if !strings.Contains(h.log(), "asked for the client to provide credentials") {
			return fmt.Errorf("the log does not say so")
		}
		return nil
	})
	h.searchAnswers("with a token that is refused")
	h.searchBundle("with a token that is refused", 0)
	h.token.put(map[string]string{"token": h.canaries["the API server's token"]})
	h.stop()
	h.change("early")
	for _, output := range []string{"table", "json"} {
		if code, out := h.searchCommand("when it differs", "verify", "--settle=1s", "-o", output); code != 1 || !strings.Contains(out, "early") {
			h.t.Errorf("verify finds no difference: exit code %d\n%s", code, out)
		}
	}
	if code, out := h.searchCommand("at the end", "forget", "--yes", "--force", "--cluster="+clusterName); code != 0 || !strings.Contains(out, "is forgotten") {
		h.t.Errorf("forget: exit code %d\n%s", code, out)
	}
	h.canaries.search(h.t, "the log", []byte(h.log()))
	if !strings.Contains(h.log(), `"level":"DEBUG"`) {
		h.t.Error("the log has nothing of level debug")
	}
}

// fails runs a forwarder that can't start and searches its output.
func (h *hidden) fails(t *testing.T, what string, set map[string]string) {
	t.Helper()
	all := map[string]string{"RESOURCES": "secrets", "LOG_LEVEL": "debug"}
	maps.Copy(all, set)
	f := newForwarder(t, h.kubeconfig, "", all)
	code, stdout, stderr := f.run("run")
	if code == 0 {
		t.Errorf("%s: it starts", what)
	}
	h.canaries.search(t, "the error of "+what, []byte(stdout+stderr))
}

// TestCanaryNATS_Slow and TestCanaryKafka_Slow verify that no secret value leaks, neither in normal operation
// nor in errors.
func TestCanaryNATS_Slow(t *testing.T) {
	const visible = "visible-on-nats"
	c := canaries{}
	password := c.add("NATS password")
	bus := natstest.StartProcess(t, fmt.Sprintf("authorization: {user: relay, password: %q}", password))
	own := newVolume(t, map[string]string{"password": password, "wrong": c.add("wrong NATS password")})
	h := newHidden(t, cluster.ControlPlane(t), c, bus.URL, map[string]string{"NATS_USER": "relay", "NATS_PASSWORD_FILE": own.path("password")})
	h.live(visible)
	recorder, err := harness.RecordNATS(strings.Replace(bus.URL, "nats://", "nats://relay:"+password+"@", 1), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(recorder.Close)
	h.searchAnswers("while it runs")
	h.searchBundle("while it runs", 0)
	c.searchBus(t, "the stream", recorder, visible)

	own.put(map[string]string{"password": c["wrong NATS password"]})
	bus.Kill()
	h.awaitReason("connect")
	h.searchAnswers("without a bus")
	h.searchBundle("without a bus", 1)
	bus.Start()
	h.awaitReason("Authorization Violation")
	h.searchAnswers("with a password that is refused")
	h.searchBundle("with a password that is refused", 1)
	own.put(map[string]string{"password": password})
	h.idle()
	h.searchRest(visible)
	c.searchFiles(t, "the server's store", visible, bus.StoreDir())

	token, seed, garbage := c.add("NATS token"), c.add("a seed"), c.add("what is no credential")
	creds, _ := natstest.NewOperator(t).User()
	for _, line := range strings.Split(creds, "\n") {
		switch {
		case strings.HasPrefix(line, "SU"):
			c["the seed of a creds file"] = line
		case strings.HasPrefix(line, "ey"):
			c["the JWT of a creds file"] = line
		}
	}
	ca := tlstest.NewCA(t)
	_, cert, key := ca.Issue("client")
	files := newVolume(t, map[string]string{
		"token": token, "creds": creds, "garbage": garbage, "seed": "SU" + seed, "cert": readFile(t, cert),
		"key": readFile(t, key) + garbage, "broken": strings.Replace(readFile(t, key), "-----\n", "-----\n"+garbage, 1),
	})
	c["a private key"] = strings.Split(readFile(t, key), "\n")[1]
	at := files.path
	secure := strings.Replace(bus.URL, "nats://", "tls://", 1)
	authority := strings.TrimPrefix(bus.URL, "nats://")
	for what, set := range map[string]map[string]string{
		"a wrong password":             {"NATS_URL": bus.URL, "NATS_USER": "relay", "NATS_PASSWORD_FILE": own.path("wrong")},
		"a wrong token":                {"NATS_URL": bus.URL, "NATS_TOKEN_FILE": at("token")},
		"wrong creds":                  {"NATS_URL": bus.URL, "NATS_CREDS_FILE": at("creds")},
		"creds that are none":          {"NATS_URL": bus.URL, "NATS_CREDS_FILE": at("garbage")},
		"an nkey that is none":         {"NATS_URL": bus.URL, "NATS_NKEY_FILE": at("seed")},
		"authorities that are none":    {"NATS_URL": secure, "NATS_TLS_CA_FILE": at("garbage")},
		"a key that is none":           {"NATS_URL": secure, "NATS_TLS_CERT_FILE": at("cert"), "NATS_TLS_KEY_FILE": at("garbage")},
		"a key that is broken":         {"NATS_URL": secure, "NATS_TLS_CERT_FILE": at("cert"), "NATS_TLS_KEY_FILE": at("broken")},
		"a server without TLS":         {"NATS_URL": secure, "NATS_USER": "relay", "NATS_PASSWORD_FILE": own.path("password"), "NATS_TLS_CERT_FILE": at("cert"), "NATS_TLS_KEY_FILE": at("key")},
		"a password in the URL":        {"NATS_URL": "nats://relay:" + password + "@" + authority},
		"a token in the URL":           {"NATS_URL": token + "@" + authority},
		"a password in an unsound URL": {"NATS_URL": "nats://relay:" + password + "%zz@" + authority},
		"a password in a variable":     {"NATS_URL": bus.URL, "NATS_PASSWORD": password},
		"Kafka's brokers as a URL":     {"SINK": "kafka", "KAFKA_BROKERS": "relay:" + password + "@localhost:9092"},
		"a key of redaction in a directory": {"NATS_URL": bus.URL, "NATS_USER": "relay", "NATS_PASSWORD_FILE": own.path("password"),
			"REDACTION_KEY_FILE": filepath.Dir(at("token"))},
	} {
		t.Run(what, func(t *testing.T) { h.fails(t, what, set) })
	}
	t.Run("a kubeconfig that is none", func(t *testing.T) {
		for n, text := range []string{
			c["the API server's token"], "apiVersion: v1\nkind: Config\nusers: [{name: x, user: " + token + "}]",
			"apiVersion: v1\nkind: Config\nusers: [{name: x, user: {token: \"" + token, "apiVersion: v1\nkind: Config\nusers: [{name: x, user: {client-key-data: " + token + "!}}]",
		} {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := newForwarder(t, path, bus.URL, map[string]string{"RESOURCES": "secrets"}).run("run")
			if code != 2 {
				t.Errorf("%d: exit code %d: %s", n, code, stderr)
			}
			c.search(t, "the error of a kubeconfig", []byte(stdout+stderr))
		}
	})
}

func TestCanaryKafka_Slow(t *testing.T) {
	const visible, topicName, user = "visible-on-kafka", "canary", "relay"
	c := canaries{}
	password := c.add("Kafka password")
	ca := tlstest.NewCA(t)
	_, cert, key := ca.Issue("broker")
	dir := t.TempDir()
	broker := kafkabrokertest.Start(t, kafkabroker.Options{
		Dir: dir, Listeners: []kafkabroker.Listener{kafkabroker.SASLSSL}, Users: map[string]string{user: password},
		TLS: kafkabroker.TLS{CertFile: cert, KeyFile: key, CAFile: ca.File},
	})
	own := newVolume(t, map[string]string{"password": password, "wrong": c.add("wrong Kafka password"), "odd": "a\x00" + c.add("a password that SCRAM cannot take"), "ca": readFile(t, ca.File)})
	address := broker.AddrOf(kafkabroker.SASLSSL)
	secured := func(set map[string]string) map[string]string {
		all := onKafka(topic{t, address, topicName}, map[string]string{
			"KAFKA_TLS": "true", "KAFKA_TLS_CA_FILE": own.path("ca"), "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512", "KAFKA_USER": user,
			"KAFKA_PASSWORD_FILE": own.path("password"), "KAFKA_COMPRESSION": "none", // keeps the broker's files searchable
		})
		maps.Copy(all, set)
		return all
	}
	h := newHidden(t, cluster.ControlPlane(t), c, "", secured(nil))
	h.live(visible)
	h.searchAnswers("while it runs")
	h.searchBundle("while it runs", 0)
	for _, name := range []string{topicName, topicName + ".checkpoint"} {
		recorder, err := harness.RecordKafka(broker.Addr(), name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(recorder.Close)
		has := visible
		if name != topicName {
			has = "early" // the checkpoint contains only keys
		}
		c.searchBus(t, "the topic "+name, recorder, has)
	}

	own.put(map[string]string{"password": c["wrong Kafka password"]})
	broker.Kill()
	h.awaitReason(address)
	h.searchAnswers("without a bus")
	h.searchBundle("without a bus", 1)
	broker.Start()
	h.awaitReason(`rejected user`)
	h.searchAnswers("with a password that is refused")
	h.searchBundle("with a password that is refused", 1)
	own.put(map[string]string{"password": password})
	h.idle()
	h.searchRest(visible)
	// The search omits the metadata log of the Kafka cluster, which contains the users' credentials.
	topics, err := filepath.Glob(filepath.Join(dir, "data", topicName+"*"))
	if err != nil {
		t.Fatal(err)
	}
	c.searchFiles(t, "the broker's files", visible, topics...)

	for what, set := range map[string]map[string]string{
		"a wrong password":             secured(map[string]string{"KAFKA_PASSWORD_FILE": own.path("wrong")}),
		"a wrong password of PLAIN":    secured(map[string]string{"KAFKA_PASSWORD_FILE": own.path("wrong"), "KAFKA_SASL_MECHANISM": "PLAIN"}),
		"a password that SCRAM hates":  secured(map[string]string{"KAFKA_PASSWORD_FILE": own.path("odd")}),
		"an authority that is another": secured(map[string]string{"KAFKA_TLS_CA_FILE": tlstest.NewCA(t).File}),
		"a password in a variable":     secured(map[string]string{"KAFKA_PASSWORD": password}),
		"brokers with a password":      secured(map[string]string{"KAFKA_BROKERS": user + ":" + password + "@" + address}),
		"brokers as a URL":             secured(map[string]string{"KAFKA_BROKERS": "sasl_ssl://" + user + ":" + password + "@" + address}),
	} {
		t.Run(what, func(t *testing.T) { h.fails(t, what, set) })
	}
}
