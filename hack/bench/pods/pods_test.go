package pods

import (
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPod(t *testing.T) {
	const seed, n = 1, 2_000
	names, total := map[string]bool{}, 0
	for i := range n {
		pod := Pod(seed, i)
		if !reflect.DeepEqual(pod, Pod(seed, i)) {
			t.Fatalf("pod %d is another the second time", i)
		}
		names[pod.Namespace+"/"+pod.Name] = true
		total += size(t, pod)
	}
	if len(names) != n {
		t.Errorf("got %d names for %d pods", len(names), n)
	}
	// With managedFields, which are the API server's, it is 14 KB: see TestFill of the benchmark.
	if got := total / n; got < 7_700 || got > 9_300 {
		t.Errorf("a pod has %d bytes on average, want 8,500", got)
	}
}

// TestPodsDiffer: what two pods of one Deployment do not share is what makes a body
// hard to compress.
func TestPodsDiffer(t *testing.T) {
	a, b := Pod(1, 7), Pod(1, 7+deployments)
	if a.OwnerReferences[0].UID != b.OwnerReferences[0].UID {
		t.Fatal("they are not of one Deployment")
	}
	if reflect.DeepEqual(a.Status, b.Status) || a.Name == b.Name || a.Annotations["cni.projectcalico.org/containerID"] == b.Annotations["cni.projectcalico.org/containerID"] {
		t.Error("two pods are alike")
	}
	if other := Pod(2, 7); other.Name == a.Name {
		t.Error("the seed makes no difference")
	}
	if Pod(1, 7).OwnerReferences[0].UID == Pod(1, block+7).OwnerReferences[0].UID {
		t.Error("100,000 pods are of no more Deployments than 20,000")
	}
}

func size(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}
