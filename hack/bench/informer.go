package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// runInformer is what others do: a dynamic informer whose handler publishes the object and
// waits for the acknowledgement. It keeps no state beside the informer's, notices no
// delete that it has not seen, and promises nothing. Its arguments are a kubeconfig, the
// namespace to watch, "" for all, and the address of a NATS server.
func runInformer(ctx context.Context, args []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	conn, err := nats.Connect(args[2])
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "PLAIN", Subjects: []string{"plain.>"}}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	publish := func(o any) {
		if err := publishPlainly(ctx, js, o.(*unstructured.Unstructured)); err != nil {
			cancel(err)
		}
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, args[1], nil)
	informer := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer()
	handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: publish, UpdateFunc: func(_, o any) { publish(o) }})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel(nil) // before Shutdown, which waits for the informer
	for _, step := range []struct {
		reached string
		done    <-chan struct{}
	}{{"synced", informer.HasSyncedChecker().Done()}, {"acked", handled.HasSyncedChecker().Done()}} {
		select {
		case <-step.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := tell(reach(step.reached)); err != nil {
			return err
		}
	}
	return answerUntilEnd(ctx)
}

func publishPlainly(ctx context.Context, js jetstream.JetStream, o *unstructured.Unstructured) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = js.Publish(ctx, fmt.Sprintf("plain.pods.%s.%s", o.GetNamespace(), o.GetName()), data)
	return err
}
