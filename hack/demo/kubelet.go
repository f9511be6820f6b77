package main

import (
	"context"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// startTime is about how long a Pod takes to run, in this cluster.
const startTime = 400 * time.Millisecond

// pretendKubelet says of every Pod that it runs, until ctx ends: the demo has no
// machines, and a Deployment whose Pods never run is not rolled out. What fails is
// tried again.
func pretendKubelet(ctx context.Context, client dynamic.Interface) {
	ticker := time.NewTicker(startTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		list, err := client.Resource(pods).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending"})
		if err != nil {
			continue
		}
		for _, pod := range list.Items {
			_, _ = client.Resource(pods).Namespace(pod.GetNamespace()).Patch(ctx, pod.GetName(),
				types.MergePatchType, runningStatus(&pod, time.Now()), metav1.PatchOptions{}, "status")
		}
	}
}

// runningStatus is a patch of what kubectl and the controllers look at.
func runningStatus(pod *unstructured.Unstructured, now time.Time) []byte {
	type object = map[string]any
	at := now.UTC().Format(time.RFC3339)
	var conditions, statuses []any
	for _, t := range []string{"PodScheduled", "Initialized", "ContainersReady", "Ready"} {
		conditions = append(conditions, object{"type": t, "status": "True", "lastTransitionTime": at})
	}
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	for _, c := range containers {
		c, _ := c.(object)
		statuses = append(statuses, object{
			"name": c["name"], "image": c["image"], "imageID": "", "ready": true, "started": true, "restartCount": 0,
			"state": object{"running": object{"startedAt": at}},
		})
	}
	patch, _ := json.Marshal(object{"status": object{ // of these types it cannot fail
		"phase": "Running", "startTime": at, "conditions": conditions, "containerStatuses": statuses,
	}})
	return patch
}
