package chart

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSidecar verifies examples/sidecar.yaml. The API server accepts it with restricted Pod
// Security. The forwarder runs with the permissions and the environment from the file, and the
// example subscribers read its built-in bus.
func TestSidecar(t *testing.T) {
	s := newAPIServer(t)
	namespace := s.namespace(t, "sidecar", restricted)
	content, err := os.ReadFile(root + "/examples/sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := decode(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.apply(t, namespace, m, metav1.DryRunAll); err != nil {
		t.Fatal(err)
	}
	pod := m.podTemplate(t)
	made, err := s.client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: pod.Labels}, Spec: pod.Spec,
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	sidecar := made.Spec.InitContainers[0]
	if sidecar.RestartPolicy == nil || *sidecar.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Error("the forwarder is not a native sidecar")
	}

	if err := s.apply(t, namespace, m); err != nil {
		t.Fatal(err)
	}
	bus := freeAddress(t)
	env := map[string]string{}
	for _, v := range sidecar.Env {
		env[v.Name] = v.Value
		if from := v.ValueFrom; from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace" {
			env[v.Name] = namespace
		}
	}
	// Use addresses and a data directory of this machine. The pod's other variables are unchanged.
	maps.Copy(env, map[string]string{"KUBERELAY_NATS_LISTEN": bus, "KUBERELAY_LISTEN_ADDR": freeAddress(t), "KUBERELAY_DATA_DIR": t.TempDir()})
	f := start(t, env, s.kubeconfig(t, namespace, made.Spec.ServiceAccountName, m))

	for name, subscriber := range subscribers {
		t.Run(name, func(t *testing.T) {
			lines := subscribe(t, bus, subscriber(t)...)
			hello := "hello-" + strings.ToLower(name)
			path := fmt.Sprintf("/api/v1/namespaces/%s/configmaps/%s", namespace, hello)
			s.create(t, namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+hello+`, labels: {from: test}}}`)
			await(t, lines, "created "+path+" ", "test")
			if err := s.client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), hello, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			await(t, lines, "deleted "+path, "")
		})
	}
	stop(t, f)
}

func goSubscriber(t *testing.T) []string {
	t.Helper()
	built := filepath.Join(t.TempDir(), "subscriber")
	if _, stderr, err := run(t.Context(), "", "go", "build", "-o", built, root+"/examples/subscriber-go"); err != nil {
		t.Fatalf("build the subscriber: %v\n%s", err, stderr)
	}
	return []string{built}
}

// subscribe starts a subscriber and returns the lines of its output.
func subscribe(t *testing.T, bus string, command ...string) <-chan string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.Stderr = []string{"NATS_URL=nats://" + bus, "PATH=" + os.Getenv("PATH")}, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines, ended := make(chan string), make(chan struct{})
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			select {
			case lines <- scanner.Text():
			case <-ended:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(ended)
		_ = cmd.Process.Kill() // the subscriber runs until it is killed
		_ = cmd.Wait()
	})
	return lines
}

// await reads lines until one has the prefix and contains the text.
func await(t *testing.T, lines <-chan string, prefix, has string) {
	t.Helper()
	deadline := time.After(limit)
	for {
		select {
		case line, more := <-lines:
			switch {
			case !more:
				t.Fatalf("the subscriber ended before it printed %q", prefix)
			case strings.HasPrefix(line, prefix) && strings.Contains(line, has):
				return
			}
			t.Log("subscriber:", line)
		case <-deadline:
			t.Fatalf("the subscriber never prints %q", prefix)
		}
	}
}
