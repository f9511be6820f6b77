package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
)

// setenv gives the test an environment with a home directory, in which only these variables have the
// prefix.
func setenv(t *testing.T, pairs ...string) {
	t.Helper()
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, config.Prefix) || name == "XDG_DATA_HOME" {
			t.Setenv(name, "") // so that the test restores the variable at its end
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("HOME", "/home/user")
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

func TestDefaults(t *testing.T) {
	setenv(t, "KUBERELAY_RESOURCES=pods")
	got, err := config.Load(config.Forwarding)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		Watch:   config.Watch{Resources: config.List{"pods"}, OnDeselect: config.OnDeselectKeep, QPS: 100, Burst: 500},
		Content: config.Content{HashKnown: true, Data: "object"},
		Event:   config.Event{Sink: config.SinkNATS, ContentMode: "binary"},
		NATS: config.NATS{
			Stream: "KUBERELAY", SubjectPrefix: "kuberelay", Replicas: 1, History: 8,
			MaxInFlight: 512, AckTimeout: 5 * time.Second,
		},
		Server: config.Server{Listen: "127.0.0.1:4222", DataDir: "/home/user/.local/share/kuberelay"},
		Kafka: config.Kafka{
			Topic: "kuberelay", Partitions: 3, Replication: -1, CleanupPolicy: "compact", Tombstones: true, Compression: "zstd", Idempotent: true,
			MaxInFlight: 2048, AckTimeout: 10 * time.Second, BatchBytes: 1 << 20,
		},
		Work: config.Work{
			Workers: 4, ResyncPeriod: 10 * time.Minute, CheckpointRefresh: 10 * time.Minute, ResolvedInterval: 10 * time.Second, DeleteRetention: 24 * time.Hour,
			RetryBaseDelay: 50 * time.Millisecond, RetryMaxDelay: 30 * time.Second, DrainTimeout: 20 * time.Second,
		},
		Leader: config.Leader{
			LeaseName: "kuberelay", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		},
		Operations: config.Operations{ListenAddr: ":8080", LogLevel: "info", StatusPage: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestEveryVariable sets every variable to a value other than its default, and verifies that the value
// arrives in the right field.
func TestEveryVariable(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string { return writeFile(t, filepath.Join(dir, name), content) }
	cert, key := writePair(t, dir)
	setenv(t,
		"KUBERELAY_RESOURCES= pods , deployments.v1.apps,*.example.com",
		"KUBERELAY_EXCLUDE_RESOURCES=replicasets.apps",
		"KUBERELAY_NAMESPACES=a,b",
		"KUBERELAY_EXCLUDE_NAMESPACES=b,c",
		"KUBERELAY_NAMESPACE_SELECTOR=team in (x,y)",
		"KUBERELAY_ON_DESELECT=publish",
		"KUBERELAY_FOLLOW=ownerReferences,pods.v1:spec.items[*].ref",
		"KUBERELAY_LABEL_SELECTOR=app in (web,api)",
		"KUBERELAY_FIELD_SELECTOR=metadata.name!=web",
		"KUBERELAY_KUBE_QPS=7",
		"KUBERELAY_KUBE_BURST=9",
		"KUBERELAY_FILTER=has(object.spec) &&\n  resource.namespaced\n",
		"KUBERELAY_DROP_FIELDS=nodes:.status, *:.metadata.annotations[\"a,b\"]",
		"KUBERELAY_HASH_FIELDS=widgets:.spec.token, pods:.metadata.annotations[\"c,d\"]",
		"KUBERELAY_HASH_KNOWN_FIELDS=false",
		"KUBERELAY_DATA=change",
		"KUBERELAY_SINK=stdout",
		"KUBERELAY_CLUSTER_NAME=prod.eu-1",
		"KUBERELAY_CONTENT_MODE=structured",
		"KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS=true",
		"KUBERELAY_REDACTION_KEY_FILE="+file("redaction", "0123456789abcdef\n"),
		"KUBERELAY_NATS_URL=nats://a:1,tls://b",
		"KUBERELAY_NATS_STREAM=S",
		"KUBERELAY_NATS_SUBJECT_PREFIX=p_-1",
		"KUBERELAY_NATS_REPLICAS=3",
		"KUBERELAY_NATS_HISTORY=2",
		"KUBERELAY_NATS_USER=u",
		"KUBERELAY_NATS_PASSWORD_FILE="+file("password", "pw"),
		"KUBERELAY_NATS_TLS_CA_FILE="+cert,
		"KUBERELAY_NATS_TLS_CERT_FILE="+cert,
		"KUBERELAY_NATS_TLS_KEY_FILE="+key,
		"KUBERELAY_NATS_MAX_IN_FLIGHT=11",
		"KUBERELAY_NATS_ACK_TIMEOUT=12s",
		"KUBERELAY_NATS_LISTEN=[::1]:0",
		"KUBERELAY_NATS_ALLOW_ANONYMOUS=true",
		"KUBERELAY_NATS_LISTEN_TLS_CERT_FILE="+cert,
		"KUBERELAY_NATS_LISTEN_TLS_KEY_FILE="+key,
		"KUBERELAY_NATS_MAX_BYTES=2000000",
		"KUBERELAY_DATA_DIR="+dir,
		"KUBERELAY_KAFKA_BROKERS=k-0:9093, k-1,[::1]:9094",
		"KUBERELAY_KAFKA_TOPIC=t.{group}.{resource}",
		"KUBERELAY_KAFKA_CHECKPOINT_TOPIC=c",
		"KUBERELAY_KAFKA_PARTITIONS=20",
		"KUBERELAY_KAFKA_REPLICATION=21",
		"KUBERELAY_KAFKA_CLEANUP_POLICY=compact",
		"KUBERELAY_KAFKA_TOMBSTONES=false",
		"KUBERELAY_KAFKA_COMPRESSION=lz4",
		"KUBERELAY_KAFKA_IDEMPOTENT=true",
		"KUBERELAY_KAFKA_TRANSACTIONAL_ID=t",
		"KUBERELAY_KAFKA_TLS=true",
		"KUBERELAY_KAFKA_TLS_CA_FILE="+cert,
		"KUBERELAY_KAFKA_TLS_CERT_FILE="+cert,
		"KUBERELAY_KAFKA_TLS_KEY_FILE="+key,
		"KUBERELAY_KAFKA_SASL_MECHANISM=SCRAM-SHA-512",
		"KUBERELAY_KAFKA_USER=ku",
		"KUBERELAY_KAFKA_PASSWORD_FILE="+file("kafka-password", "pw"),
		"KUBERELAY_KAFKA_MAX_IN_FLIGHT=22",
		"KUBERELAY_KAFKA_ACK_TIMEOUT=23s",
		"KUBERELAY_KAFKA_BATCH_BYTES=24000",
		"KUBERELAY_WORKERS=13",
		"KUBERELAY_RESYNC_PERIOD=14s",
		"KUBERELAY_CHECKPOINT_REFRESH=15s",
		"KUBERELAY_RESOLVED_INTERVAL=25s",
		"KUBERELAY_DELETE_RETENTION=16s",
		"KUBERELAY_MAX_DELETES=17",
		"KUBERELAY_RETRY_BASE_DELAY=17ms",
		"KUBERELAY_RETRY_MAX_DELAY=18s",
		"KUBERELAY_DRAIN_TIMEOUT=0s",
		"KUBERELAY_LEADER_ELECTION=true",
		"KUBERELAY_LEASE_NAME=web.kuberelay",
		"KUBERELAY_LEASE_NAMESPACE=apps",
		"KUBERELAY_LEASE_DURATION=25s",
		"KUBERELAY_LEASE_RENEW_DEADLINE=20s",
		"KUBERELAY_LEASE_RETRY_PERIOD=3s",
		"KUBERELAY_LISTEN_ADDR=localhost:19",
		"KUBERELAY_READY_REQUIRES_MATCHES=true",
		"KUBERELAY_METRICS_AUTH=true",
		"KUBERELAY_LISTEN_TLS_CERT_FILE="+cert,
		"KUBERELAY_LISTEN_TLS_KEY_FILE="+key,
		"KUBERELAY_LOG_LEVEL=debug",
		"KUBERELAY_LOG_FORMAT=text",
		"KUBERELAY_STATUS_PAGE=false",
		"KUBERELAY_PPROF=true",
	)
	got, err := config.Load(config.Forwarding)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		Watch: config.Watch{
			Resources: config.List{"pods", "deployments.v1.apps", "*.example.com"}, ExcludeResources: config.List{"replicasets.apps"},
			Namespaces: config.List{"a", "b"}, ExcludeNamespaces: config.List{"b", "c"}, NamespaceSelector: "team in (x,y)", OnDeselect: "publish",
			Follow:        config.List{"ownerReferences", "pods.v1:spec.items[*].ref"},
			LabelSelector: "app in (web,api)", FieldSelector: "metadata.name!=web", QPS: 7, Burst: 9,
		},
		Content: config.Content{
			Filter: "has(object.spec) &&\n  resource.namespaced", DropFields: config.Paths{"nodes:.status", `*:.metadata.annotations["a,b"]`},
			HashFields: config.Paths{"widgets:.spec.token", `pods:.metadata.annotations["c,d"]`}, HashKnown: false, Data: "change",
		},
		Event: config.Event{
			Sink: config.SinkStdout, ClusterName: "prod.eu-1", ContentMode: "structured", AllowPlaintext: true, RedactionKeyFile: filepath.Join(dir, "redaction"),
		},
		NATS: config.NATS{
			URLs: config.List{"nats://a:1", "tls://b"}, Stream: "S", SubjectPrefix: "p_-1", Replicas: 3, History: 2,
			User: "u", PasswordFile: filepath.Join(dir, "password"), CAFile: cert, CertFile: cert, KeyFile: key,
			MaxInFlight: 11, AckTimeout: 12 * time.Second,
		},
		Server: config.Server{Listen: "[::1]:0", AllowAnonymous: true, CertFile: cert, KeyFile: key, MaxBytes: 2000000, DataDir: dir},
		Kafka: config.Kafka{
			Brokers: config.List{"k-0:9093", "k-1", "[::1]:9094"}, Topic: "t.{group}.{resource}", CheckpointTopic: "c", Partitions: 20, Replication: 21,
			CleanupPolicy: "compact", Tombstones: false, Compression: "lz4", Idempotent: true, TransactionalID: "t",
			TLS: true, CAFile: cert, CertFile: cert, KeyFile: key,
			SASLMechanism: "SCRAM-SHA-512", User: "ku", PasswordFile: filepath.Join(dir, "kafka-password"),
			MaxInFlight: 22, AckTimeout: 23 * time.Second, BatchBytes: 24000,
		},
		Work: config.Work{
			Workers: 13, ResyncPeriod: 14 * time.Second, CheckpointRefresh: 15 * time.Second, ResolvedInterval: 25 * time.Second, DeleteRetention: 16 * time.Second, MaxDeletes: 17,
			RetryBaseDelay: 17 * time.Millisecond, RetryMaxDelay: 18 * time.Second,
		},
		Leader: config.Leader{
			Election: true, LeaseName: "web.kuberelay", Namespace: "apps",
			LeaseDuration: 25 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 3 * time.Second,
		},
		Operations: config.Operations{ListenAddr: "localhost:19", RequireMatches: true, MetricsAuth: true, CertFile: cert, KeyFile: key, LogLevel: "debug", LogFormat: config.LogText, StatusPage: false, Profiles: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestOtherCredentials(t *testing.T) {
	dir := t.TempDir()
	creds := writeFile(t, filepath.Join(dir, "creds"),
		"-----BEGIN NATS USER JWT-----\nx\n------END NATS USER JWT------\n-----BEGIN USER NKEY SEED-----\nSUx\n------END USER NKEY SEED------\n")
	for _, tc := range []struct {
		name, path string
		got        func(config.NATS) string
	}{
		{"KUBERELAY_NATS_TOKEN_FILE", writeFile(t, filepath.Join(dir, "token"), "t\n"), func(n config.NATS) string { return n.TokenFile }},
		{"KUBERELAY_NATS_CREDS_FILE", creds, func(n config.NATS) string { return n.CredsFile }},
		{"KUBERELAY_NATS_NKEY_FILE", writeFile(t, filepath.Join(dir, "nkey"), "SUx\n"), func(n config.NATS) string { return n.NkeyFile }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			setenv(t, "KUBERELAY_RESOURCES=pods", "KUBERELAY_NATS_URL=wss://nats", tc.name+"="+tc.path)
			c, err := config.Load(config.Forwarding)
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.got(c.NATS); got != tc.path {
				t.Errorf("got %q, want %q", got, tc.path)
			}
		})
	}
}

// TestFleet verifies the sources of several clusters. The sources conflict with one another, and
// with the name of a single cluster.
func TestFleet(t *testing.T) {
	dir := t.TempDir()
	for variable, want := range map[string]config.Fleet{
		"KUBERELAY_KUBECONFIG_CONTEXTS=a,b=c/d": {Contexts: config.List{"a", "b=c/d"}},
		"KUBERELAY_KUBECONFIG_DIR=" + dir:       {Dir: dir},
		"KUBERELAY_CLUSTER_API=x,y":             {ClusterAPI: config.List{"x", "y"}, Management: "home"},
	} {
		name, _, _ := strings.Cut(variable, "=")
		t.Run(name, func(t *testing.T) {
			set := []string{"KUBERELAY_RESOURCES=pods", variable}
			if want.Management != "" {
				set = append(set, "KUBERELAY_CLUSTER_API_MANAGEMENT_NAME="+want.Management)
			}
			setenv(t, set...)
			c, err := config.Load(config.Forwarding)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(c.Fleet, want) || c.Fleet.Source() != name {
				t.Errorf("got %+v of %s", c.Fleet, c.Fleet.Source())
			}
		})
	}
}

// TestOtherKafka sets the Kafka variables whose values conflict with those in TestEveryVariable.
func TestOtherKafka(t *testing.T) {
	setenv(t, "KUBERELAY_RESOURCES=pods", "KUBERELAY_SINK=kafka", "KUBERELAY_KAFKA_BROKERS=kafka",
		"KUBERELAY_KAFKA_CLEANUP_POLICY=delete", "KUBERELAY_KAFKA_IDEMPOTENT=false")
	c, err := config.Load(config.Forwarding)
	if err != nil {
		t.Fatal(err)
	}
	if c.Event.Sink != config.SinkKafka || c.Kafka.CleanupPolicy != "delete" || c.Kafka.Idempotent {
		t.Errorf("got %+v", c)
	}
}

func TestEmptyIsUnset(t *testing.T) {
	pairs := []string{}
	for _, f := range config.Fields() {
		if !f.Required {
			pairs = append(pairs, f.Name+"= ")
		}
	}
	setenv(t, "KUBERELAY_RESOURCES=pods")
	want, err := config.Load(config.Forwarding)
	if err != nil {
		t.Fatal(err)
	}
	setenv(t, append(pairs, "KUBERELAY_RESOURCES=pods")...)
	got, err := config.Load(config.Forwarding)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestPrefixIsNeeded verifies that variables without the prefix are ignored, because they belong to
// other programs. If a tag were LOG_LEVEL, envconfig would read the variable LOG_LEVEL.
func TestPrefixIsNeeded(t *testing.T) {
	setenv(t, "KUBERELAY_RESOURCES=pods", "LOG_LEVEL=debug", "WORKERS=7", "SINK=stdout")
	c, err := config.Load(config.Forwarding)
	if err != nil {
		t.Fatal(err)
	}
	if c.Operations.LogLevel != "info" || c.Work.Workers != 4 || c.Event.Sink != config.SinkNATS {
		t.Errorf("read a variable without the prefix: %+v", c)
	}
}

func TestSubscribingNeedsNoResources(t *testing.T) {
	setenv(t)
	if _, err := config.Load(config.Subscribing); err != nil {
		t.Error(err)
	}
	if _, err := config.Load(config.Forwarding); err == nil {
		t.Error("forwarding without resources: no error")
	}
}

func TestDataDir(t *testing.T) {
	for _, tc := range []struct{ name, xdg, want string }{
		{"home", "", "/home/user/.local/share/kuberelay"},
		{"xdg", "/data", "/data/kuberelay"},
		{"relative xdg", "data", "/home/user/.local/share/kuberelay"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			setenv(t, "KUBERELAY_RESOURCES=pods", "XDG_DATA_HOME="+tc.xdg)
			c, err := config.Load(config.Forwarding)
			if err != nil {
				t.Fatal(err)
			}
			if c.Server.DataDir != tc.want {
				t.Errorf("got %q, want %q", c.Server.DataDir, tc.want)
			}
		})
	}
	// A container may have no home directory. It needs one only with the built-in server.
	setenv(t, "KUBERELAY_RESOURCES=pods", "KUBERELAY_NATS_URL=nats://nats", "HOME=")
	if _, err := config.Load(config.Forwarding); err != nil {
		t.Error(err)
	}
}

func TestFieldsAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range config.Fields() {
		switch {
		case !strings.HasPrefix(f.Name, config.Prefix):
			t.Errorf("%q: no prefix", f.Name)
		case seen[f.Name]:
			t.Errorf("%s: twice", f.Name)
		case f.Group == "" || f.Type == "" || !strings.HasSuffix(f.Description, "."):
			t.Errorf("%s: not described: %+v", f.Name, f)
		case f.Required && (f.Default != "" || f.Unset != "" || f.Example == ""):
			t.Errorf("%s: a required variable needs an example, and can't have a default", f.Name)
		case !f.Required && (f.Default == "") == (f.Unset == ""):
			t.Errorf("%s: an optional variable needs either a default or the tag unset", f.Name)
		case (f.Type == "number" || f.Type == "duration") && f.Bounds == "":
			t.Errorf("%s: no bounds", f.Name)
		case strings.HasSuffix(f.Name, "_FILE") != f.File:
			t.Errorf("%s: the name must end in _FILE if and only if the value is the path of a file", f.Name)
		}
		seen[f.Name] = true
	}
}

func TestEffective(t *testing.T) {
	setenv(t, "KUBERELAY_RESOURCES= pods, nodes", "KUBERELAY_RESYNC_PERIOD=90m", "KUBERELAY_WORKERS=")
	c, err := config.Load(config.Forwarding)
	if err != nil {
		t.Fatal(err)
	}
	type value struct {
		value string
		set   bool
	}
	want := map[string]value{
		"KUBERELAY_RESOURCES":          {"pods,nodes", true},
		"KUBERELAY_RESYNC_PERIOD":      {"1h30m", true},
		"KUBERELAY_DELETE_RETENTION":   {"24h", false},
		"KUBERELAY_CHECKPOINT_REFRESH": {"10m", false},
		"KUBERELAY_RESOLVED_INTERVAL":  {"10s", false},
		"KUBERELAY_NATS_ACK_TIMEOUT":   {"5s", false},
		"KUBERELAY_WORKERS":            {"4", false},
		"KUBERELAY_DATA_DIR":           {"/home/user/.local/share/kuberelay", false},
		"KUBERELAY_NATS_URL":           {"", false},
		"KUBERELAY_KAFKA_IDEMPOTENT":   {"true", false},
		"KUBERELAY_KAFKA_TLS":          {"false", false},
		"KUBERELAY_KAFKA_REPLICATION":  {"-1", false},
	}
	values := c.Effective()
	for _, v := range values {
		if w, ok := want[v.Name]; ok {
			if got := (value{v.Value, v.Set}); got != w {
				t.Errorf("%s: got %v, want %v", v.Name, got, w)
			}
			delete(want, v.Name)
		}
	}
	if len(want) != 0 || len(values) != len(config.Fields()) {
		t.Errorf("not effective: %v; got %d values for %d variables", want, len(values), len(config.Fields()))
	}
}

// TestEffectiveQuery verifies that the effective value hides a query, because a query can contain
// credentials.
func TestEffectiveQuery(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	const name = "KUBERELAY_KAFKA_OAUTH_TOKEN_URL"
	setenv(t, "KUBERELAY_RESOURCES=pods", "KUBERELAY_SINK=kafka", "KUBERELAY_KAFKA_BROKERS=b:9092", "KUBERELAY_KAFKA_TLS=true", "KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER",
		"KUBERELAY_KAFKA_OAUTH_CLIENT_ID=c", "KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE="+secret, name+"=https://idp/token?client_secret=hunter2")
	c, err := config.Load(config.Forwarding)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range c.Effective() {
		if v.Name == name && v.Value != "https://idp/token?***" || strings.Contains(v.Value, "hunter2") {
			t.Errorf("%s: got %q", v.Name, v.Value)
		}
	}
}
