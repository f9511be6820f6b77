package replica_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/replica"
)

// This informer factory reads pods from the bus. All callers that get the pod informer or lister from
// the factory share the informer that reads the bus.
func Example() {
	url, stop := startBus() // a forwarder writes to it
	defer stop()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bus, err := replica.NATS(ctx, replica.NATSOptions{URLs: []string{url}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = bus.Close() }()

	var client kubernetes.Interface // for other resources, and for writes
	factory := informers.NewSharedInformerFactory(client, 0)
	factory.InformerFor(&corev1.Pod{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		pods := bus.ListerWatcher(corev1.SchemeGroupVersion.WithResource("pods"), replica.Options{Object: &corev1.Pod{}})
		return cache.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})

	lister := factory.Core().V1().Pods().Lister()
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)

	pods, err := lister.Pods("shop").List(labels.Everything())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range pods {
		fmt.Println(p.Name, p.Status.Phase)
	}
	// Output:
	// web-0 Running
}
