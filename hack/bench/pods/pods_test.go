package pods

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestPod(t *testing.T) {
	const seed, n = 1, 2_000
	names, total := map[string]bool{}, 0
	for i := range n {
		pod := Pod(seed, i)
		if !reflect.DeepEqual(pod, Pod(seed, i)) {
			t.Fatalf("pod %d differs the second time", i)
		}
		names[pod.Namespace+"/"+pod.Name] = true
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		total += len(text)
	}
	if len(names) != n {
		t.Errorf("got %d names for %d pods", len(names), n)
	}
	if got := total / n; got < 7_700 || got > 9_300 { // without managedFields; TestFill checks the size with them
		t.Errorf("a pod has %d bytes on average, want 8,500", got)
	}
}

// TestPodsDiffer verifies that pods of the same Deployment differ, and that pods of different seeds and
// blocks differ.
func TestPodsDiffer(t *testing.T) {
	a, b := Pod(1, 7), Pod(1, 7+deployments)
	if a.OwnerReferences[0].UID != b.OwnerReferences[0].UID {
		t.Fatal("the pods belong to different Deployments")
	}
	const annotation = "cni.projectcalico.org/containerID"
	if reflect.DeepEqual(a.Status, b.Status) || a.Name == b.Name || a.Annotations[annotation] == b.Annotations[annotation] {
		t.Error("two pods of a Deployment are alike")
	}
	if Pod(2, 7).Name == a.Name || Pod(1, block+7).OwnerReferences[0].UID == a.OwnerReferences[0].UID {
		t.Error("another seed or block creates the same Deployment")
	}
}
