// Command kubestatemetrics is kube-state-metrics with reflectors that read from the bus. It uses the
// builder, stores and metrics handler of kube-state-metrics, and replaces only the list-watch.
// Without NATS_URL, the reflectors read from the API server, as in kube-state-metrics itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"reflect"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kube-state-metrics/v2/pkg/allowdenylist"
	"k8s.io/kube-state-metrics/v2/pkg/builder"
	buildertypes "k8s.io/kube-state-metrics/v2/pkg/builder/types"
	generator "k8s.io/kube-state-metrics/v2/pkg/metric_generator"
	"k8s.io/kube-state-metrics/v2/pkg/metricshandler"
	"k8s.io/kube-state-metrics/v2/pkg/options"

	"github.com/kuberelay/kuberelay/replica"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves the metrics of pods and deployments on ADDRESS until ctx ends.
func run(ctx context.Context) error {
	b := builder.NewBuilder()
	b.WithMetrics(prometheus.NewRegistry())
	filter, err := allowdenylist.New(nil, nil)
	if err == nil {
		err = filter.Parse()
	}
	if err == nil {
		err = b.WithEnabledResources([]string{"pods", "deployments"})
	}
	if err != nil {
		return err
	}
	b.WithFamilyGeneratorFilter(generator.NewCompositeFamilyGeneratorFilter(filter))
	b.WithNamespaces(options.NamespaceList{os.Getenv("NAMESPACE")})
	if url := os.Getenv("NATS_URL"); url != "" {
		bus, err := replica.NATS(ctx, replica.NATSOptions{URLs: []string{url}})
		if err != nil {
			return err
		}
		defer func() { _ = bus.Close() }()
		b.WithGenerateStoresFunc(onTheBus(bus, b.DefaultGenerateStoresFunc()))
	} else {
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		b.WithKubeClient(client)
		b.WithGenerateStoresFunc(b.DefaultGenerateStoresFunc())
	}
	handler := metricshandler.New(&options.Options{}, nil, b, false)
	handler.ConfigureSharding(ctx, 0, 1)
	return serve(ctx, handler)
}

var resources = map[reflect.Type]schema.GroupVersionResource{
	reflect.TypeFor[*corev1.Pod]():        corev1.SchemeGroupVersion.WithResource("pods"),
	reflect.TypeFor[*appsv1.Deployment](): appsv1.SchemeGroupVersion.WithResource("deployments"),
}

// onTheBus replaces the list-watch of the stores that generate builds.
func onTheBus(bus *replica.Bus, generate buildertypes.BuildStoresFunc) buildertypes.BuildStoresFunc {
	return func(families []generator.FamilyGenerator, expected any, _ func(kubernetes.Interface, string, string) cache.ListerWatcher, useCache bool, limit int64) []cache.Store {
		return generate(families, expected, func(_ kubernetes.Interface, namespace, _ string) cache.ListerWatcher {
			return bus.ListerWatcher(resources[reflect.TypeOf(expected)], replica.Options{Object: expected.(runtime.Object), Namespace: namespace})
		}, useCache, limit)
	}
}

func serve(ctx context.Context, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", os.Getenv("ADDRESS"))
	if err != nil {
		return err
	}
	server := http.Server{Handler: handler}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
