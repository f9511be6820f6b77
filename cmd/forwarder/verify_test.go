package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// TestVerify_Slow verifies 'forwarder verify' while a forwarder runs, and after it has stopped.
func TestVerify_Slow(t *testing.T) {
	cp := controlplanetest.New(t, controlplane.Options{Users: map[string][]string{"little": nil}})
	server := natstest.Start(t)
	for name, value := range map[string]string{
		"KUBECONFIG": cp.Kubeconfig(), "KUBERELAY_NATS_URL": server.URL, "KUBERELAY_RESOURCES": "*",
		"KUBERELAY_LISTEN_ADDR": "127.0.0.1:0", "KUBERELAY_LOG_LEVEL": "error", "KUBERELAY_CHECKPOINT_REFRESH": "1s",
	} {
		t.Setenv(name, value)
	}
	createForSchema(t, cp)
	// The forwarder is a separate process, because klog has only one logger per process. TestMain
	// makes the test binary run the forwarder.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	forwarder := exec.CommandContext(t.Context(), self)
	forwarder.Args = []string{"forwarder", "run"}
	forwarder.Stderr = os.Stderr
	if err := forwarder.Start(); err != nil {
		t.Fatal(err)
	}

	verify := func(args ...string) (code int, stdout, stderr string) {
		var out, err bytes.Buffer
		timed, cancel := context.WithTimeout(t.Context(), tailLimit)
		defer cancel()
		code = run(timed, append([]string{"verify"}, args...), &out, &err)
		return code, out.String(), err.String()
	}
	deadline := time.Now().Add(tailLimit)
	for { // until the stream exists and has the whole cluster
		code, stdout, stderr := verify()
		if code == 0 {
			if stderr != "" || !strings.Contains(stdout, "\nclean: 0 differences of state in ") {
				t.Errorf("standard output %q, standard error %q", stdout, stderr)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("exit code %d; %s%s", code, stdout, stderr)
		}
	}
	checkSchemas(t, server.URL)
	checkSchemaErrors(t)
	foreignMessage(t, server.URL, verify)
	if err := errors.Join(forwarder.Process.Signal(syscall.SIGTERM), forwarder.Wait()); err != nil {
		t.Fatalf("the forwarder: %v", err)
	}

	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	missing := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "missing"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), missing, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := verify("--settle=100ms")
	if code != exitFailure || stderr != "" || strings.Count(stdout, "1 difference of state") != 1 {
		t.Errorf("exit code %d, want the verdict once; standard error %q, standard output %q", code, stderr, stdout)
	}
	if row := regexp.MustCompile(`(?m)^missing +configmaps +default/missing +\d+ +- +- +the bus has no event of it$`); !row.MatchString(stdout) {
		t.Errorf("got\n%s", stdout)
	}
	code, stdout, _ = verify("--settle=100ms", "-o", "json")
	var report struct {
		Problems []struct{ Problem, Resource, Namespace, Name string }
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitFailure || len(report.Problems) != 1 || report.Problems[0].Name != "missing" {
		t.Errorf("exit code %d, %v, got %s", code, err, stdout)
	}

	nowhere := "127.0.0.1:" + strconv.Itoa(natstest.FreePort(t))
	for _, tc := range []struct {
		name string
		env  map[string]string
		code int
		want []string // in standard output and standard error
	}{
		{"wrong cluster", map[string]string{"KUBERELAY_CLUSTER_NAME": "typo", "KUBERELAY_RESOURCES": "configmaps"}, exitFailure, []string{
			`the bus has no events of cluster "typo": check KUBERELAY_CLUSTER_NAME (and KUBERELAY_NATS_SUBJECT_PREFIX)`, "\nmissing ", "\nnot clean: ",
		}},
		{"wrong prefix", map[string]string{"KUBERELAY_NATS_SUBJECT_PREFIX": "typo", "KUBERELAY_RESOURCES": "configmaps"}, exitFailure, []string{"check KUBERELAY_CLUSTER_NAME (and KUBERELAY_NATS_SUBJECT_PREFIX)"}},
		{"wrong stream", map[string]string{"KUBERELAY_NATS_STREAM": "NOPE"}, exitUsage, []string{`"NOPE"`, "does not exist yet: check KUBERELAY_NATS_STREAM"}},
		{"no NATS", map[string]string{"KUBERELAY_NATS_URL": "nats://" + nowhere}, exitUsage, []string{
			"cannot compare: open the bus: it does not respond: not connected to nats://" + nowhere + ": ", ": check KUBERELAY_NATS_URL, and that a server is running there",
		}},
		{"no built-in NATS", map[string]string{"KUBERELAY_NATS_URL": "", "KUBERELAY_NATS_LISTEN": nowhere}, exitUsage, []string{
			"not connected to nats://" + nowhere + ": ", " (is a forwarder running on this machine? To use another server, set KUBERELAY_NATS_URL)",
		}},
		{"no Kafka", map[string]string{"KUBERELAY_SINK": "kafka", "KUBERELAY_NATS_URL": "", "KUBERELAY_KAFKA_BROKERS": nowhere}, exitUsage, []string{
			"cannot compare: open the bus: it does not respond: ", ": check KUBERELAY_KAFKA_BROKERS, and that a broker is running there",
		}},
		{"no access", map[string]string{"KUBECONFIG": cp.KubeconfigFor("little"), "KUBERELAY_CLUSTER_NAME": "typo", "KUBERELAY_RESOURCES": "configmaps"}, exitUsage, []string{
			"cannot compare: not everything could be read: ", "configmaps is forbidden",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, value := range tc.env {
				t.Setenv(name, value)
			}
			code, stdout, stderr := verify("--settle=100ms")
			for _, want := range tc.want {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("got\n%s%s\nwant %q in it", stdout, stderr, want)
				}
			}
			if code != tc.code || strings.Contains(stderr, "deadline exceeded") {
				t.Errorf("exit code %d, want %d; %s", code, tc.code, stderr)
			}
			t.Log(stderr)
		})
	}
}

// foreignMessage verifies that verify reports a foreign message on the subject of an object until the
// subject is purged and the forwarder publishes the state again, as docs/verify.md says.
func foreignMessage(t *testing.T, url string, verify func(...string) (int, string, string)) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(tailLimit))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(tailLimit))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("kuberelay.*.core.namespaces._.default"))
	if err != nil || len(info.State.Subjects) != 1 {
		t.Fatalf("got %+v, %v", info, err)
	}
	for subject := range info.State.Subjects {
		if _, err := js.Publish(t.Context(), subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
		await := func(what string, want func(code int, stdout string) bool) {
			t.Helper()
			deadline := time.Now().Add(tailLimit)
			for {
				code, stdout, stderr := verify("--settle=2s")
				if want(code, stdout) {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("not %s: exit code %d; %s%s", what, code, stdout, stderr)
				}
			}
		}
		await("reported alone", func(code int, stdout string) bool {
			return code == exitFailure && strings.Contains(stdout, "\nforeign ") && strings.Contains(stdout, "not clean: 0 differences of state in ") &&
				strings.Contains(stdout, ", 0 problems of order or form in ")
		})
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(subject)); err != nil {
			t.Fatal(err)
		}
		await("clean after the purge", func(code int, _ string) bool { return code == 0 })
		if last, err := stream.GetLastMsgForSubject(t.Context(), subject); err != nil || last.Header.Get("ce-type") != "io.kuberelay.object.created" {
			t.Errorf("got %+v, %v, want created", last, err)
		}
	}
}
