package main

import (
	"io"
	"os"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	corev1 "k8s.io/api/core/v1"

	"github.com/kuberelay/kuberelay/internal/controlplane/controlplanetest"
)

var shared controlplanetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// TestFill: a pod is what it is in a real cluster, of 14 KB, with the fields of those who
// manage it there.
func TestFill(t *testing.T) {
	config := shared.ControlPlane(t).Config()
	const n = 120
	if err := fill(t.Context(), config, 0, n, io.Discard); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != n {
		t.Fatalf("got %d pods, want %d", len(list.Items), n)
	}
	managers, bytes := map[string]int{}, 0
	for _, p := range list.Items {
		for _, entry := range p.GetManagedFields() {
			managers[entry.Manager+" "+entry.Subresource]++
		}
		text, err := p.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		bytes += len(text)
	}
	if managers["kube-controller-manager "] != n || managers["kubelet status"] != n || managers["kubectl-label "] != n/10 {
		t.Errorf("the pods have the managers %v", managers)
	}
	if size := bytes / n; size < 12_600 || size > 15_400 {
		t.Errorf("a pod has %d bytes, want 14,000 and at most a tenth more or less", size)
	}
	if namespaces := list.Items[0].GetNamespace(); !slices.Contains([]string{liveNamespace}, namespaces) {
		t.Errorf("the first pod is in %s", namespaces)
	}
}
