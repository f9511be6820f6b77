package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestGet_Slow compares the output of get with a list from the API server. One object is deleted while no
// forwarder runs, and the events use the data form change.
func TestGet_Slow(t *testing.T) {
	cp := cluster.ControlPlane(t)
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		u := newUser(t, cp)
		namespace := quietNamespace(t, u)
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{
			"RESOURCES": "configmaps", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "50ms", "DATA": "change",
		})
		for _, name := range []string{"a", "b", "gone"} {
			u.create(configMaps, namespace, configMap(name, "1"))
		}
		f.start().idle()
		f.stop()
		u.delete(configMaps, namespace, "gone")
		u.label(configMaps, namespace, "b", "yes")
		f.start()
		poll.Try(t, "get prints what the API server lists", func(ctx context.Context) error {
			list, err := u.of(configMaps, namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			var want []any
			for i := range list.Items {
				want = append(want, asPublished(&list.Items[i]))
			}
			code, stdout, stderr := f.run("get", "configmaps", "-n", namespace, "-o", "json")
			var got struct{ Items []any }
			if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 {
				return fmt.Errorf("exit code %d, %w: %s%s", code, err, stdout, stderr)
			}
			if !reflect.DeepEqual(normal(t, got.Items), normal(t, want)) {
				return fmt.Errorf("got %s, want %v", stdout, want)
			}
			if !strings.Contains(stderr, "configmaps of the cluster") || !strings.Contains(stderr, " as of 2") {
				return fmt.Errorf("not how recent it is: %s", stderr)
			}
			return nil
		})
		if code, stdout, stderr := f.run("get", "cm", "-n", namespace); code != 0 ||
			!slices.Equal(firstWords(stdout), []string{"NAME", "a", "b", "kube-root-ca.crt"}) {
			t.Errorf("the table: exit code %d: %s%s", code, stdout, stderr)
		}
		if code, stdout, stderr := f.run("get", "cm", "gone", "-n", namespace); code != 1 || stdout != "" || !strings.Contains(stderr, "it was deleted") {
			t.Errorf("a deleted object: exit code %d: %s%s", code, stdout, stderr)
		}
		if code, stdout, stderr := f.run("get", "configmap.apps", "-n", namespace); code != 1 || stdout != "" || !strings.Contains(stderr, "; it has configmaps\n") {
			t.Errorf("a resource that is not there: exit code %d: %s%s", code, stdout, stderr)
		}
		code, stdout, stderr := f.run("tail", "--last", "--no-follow", "-n", namespace)
		if code != 0 || strings.Count(stdout, "\n") != 4 || strings.Count(stdout, " deleted ") != 1 {
			t.Errorf("tail: exit code %d: %s%s", code, stdout, stderr)
		}
		f.stop()
	})
}

// normal returns a value after a round trip through JSON.
func normal(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var again any
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	return again
}

// firstWords returns the first word of each line.
func firstWords(text string) []string {
	var words []string
	for line := range strings.Lines(text) {
		word, _, _ := strings.Cut(line, " ")
		words = append(words, word)
	}
	return words
}
