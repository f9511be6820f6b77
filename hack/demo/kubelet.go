package main

import (
	"context"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// pretendKubelet says of every Pod that it runs, until ctx ends: the demo has no
// machines, and a Deployment whose Pods never run is not rolled out.
func pretendKubelet(ctx context.Context, client dynamic.Interface) error {
	const again = 2 * time.Second // whatever failed
	informer := dynamicinformer.NewFilteredDynamicInformer(client, pods, metav1.NamespaceAll, again, cache.Indexers{}, nil).Informer()
	run := func(o any) {
		pod := o.(*unstructured.Unstructured)
		if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase != "Pending" {
			return
		}
		_, _ = client.Resource(pods).Namespace(pod.GetNamespace()).Patch(ctx, pod.GetName(),
			types.MergePatchType, runningStatus(pod, time.Now()), metav1.PatchOptions{}, "status")
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: run, UpdateFunc: func(_, o any) { run(o) }})
	if err != nil {
		return err
	}
	informer.RunWithContext(ctx)
	return nil
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
