package e2e

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/hack/bench/pods"
	"github.com/kuberelay/kuberelay/replica"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// The sizes of BenchmarkReaders: the number of pods, some of which change, and the number of
// readers.
var (
	benchPods    = flag.Int("readers.pods", 1_000, "pods")
	benchReaders = flag.Int("readers.bus", 300, "readers on the bus")
	benchStandIn = flag.Int("readers.api", 30, "informers on the API server")
	benchAtOnce  = flag.Int("readers.at-once", 8, "readers that sync at a time: each holds all pods as it read them until it has synced")
)

const benchChanges = 100

// BenchmarkReaders measures the API server's CPU time and the bytes that it sends, from the first
// list until each reader has seen all changes. Readers on the bus add only the cost of the
// forwarder, regardless of their number. At the end, their stores must equal the API server at a
// consistency point. Informers on the API server read protobuf. All readers of a run exist until
// its end and share this process. With 1,000 pods, the benchmark takes about two minutes. With
// 20,000 pods, it takes ten minutes and 12 GB of memory with GOGC=50, GOMEMLIMIT=12GiB and
// -readers.at-once 6.
//
//	go test ./test/e2e -run '^$' -bench BenchmarkReaders -benchtime 1x -timeout 0 -readers.pods 1000 -readers.bus 300
//
// The API server also uses CPU time without readers. The benchmark reports that time as
// api-server-idle-cpu-ms/s, and the duration of the run as seconds.
func BenchmarkReaders(b *testing.B) {
	b.Run("api-server", func(b *testing.B) {
		for range b.N {
			benchmarkReaders(b, *benchStandIn, func(cp *controlplane.ControlPlane) func() (cache.ListerWatcher, apiruntime.Object) {
				return func() (cache.ListerWatcher, apiruntime.Object) {
					config := rest.CopyConfig(cp.Config())
					config.ContentType, config.QPS = apiruntime.ContentTypeProtobuf, -1
					client, err := kubernetes.NewForConfig(config)
					if err != nil {
						b.Fatal(err)
					}
					return cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything()), &corev1.Pod{}
				}
			})
		}
	})
	b.Run("bus", func(b *testing.B) {
		for range b.N {
			benchmarkReaders(b, *benchReaders, func(cp *controlplane.ControlPlane) func() (cache.ListerWatcher, apiruntime.Object) {
				url := natstest.StartProcess(b).URL
				startForwarder(b, cp, url)
				return func() (cache.ListerWatcher, apiruntime.Object) {
					bus, err := replica.NATS(b.Context(), replica.NATSOptions{URLs: []string{url}})
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(func() { _ = bus.Close() })
					object := &metav1.PartialObjectMetadata{} // metadata only: decoding costs this process, not the API server
					return bus.ListerWatcher(corev1.SchemeGroupVersion.WithResource("pods"), replica.Options{Object: object}), object
				}
			})
		}
	})
}

func startForwarder(b *testing.B, cp *controlplane.ControlPlane, url string) {
	b.Helper()
	address, err := harness.FreePort()
	if err != nil {
		b.Fatal(err)
	}
	f := harness.New(harness.Options{
		Binary: binary, Dir: b.TempDir(), Address: address, Kubeconfig: cp.Kubeconfig(), NATSURL: url, Cluster: clusterName,
		Set: map[string]string{"RESOURCES": "pods"},
	})
	if err := f.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Kill)
	poll.Try(b, "the forwarder has nothing to do", f.Idle)
}

// benchmarkReaders starts the readers with their own cluster. The function prepare starts
// everything that the readers need and returns a constructor of readers.
func benchmarkReaders(b *testing.B, readers int, prepare func(*controlplane.ControlPlane) func() (cache.ListerWatcher, apiruntime.Object)) {
	b.Helper()
	b.StopTimer()
	cp, err := controlplane.Start(b.Context(), controlplane.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cp.Stop() })
	config := rest.CopyConfig(cp.Config())
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	all := fillPods(b, client)
	idle := apiServerIdle(b, client)
	cpu, bytes := apiServerCost(b, client)
	began := time.Now()
	b.StartTimer()

	newReader := prepare(cp)
	var seen atomic.Int64 // changes that readers have seen
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(b.Context())
	defer running.Wait()
	defer stop()
	var synced []cache.InformerSynced
	var stores []cache.Store
	var lw cache.ListerWatcher
	for range readers {
		var object apiruntime.Object
		lw, object = newReader()
		informer := cache.NewSharedIndexInformer(lw, object, 0, cache.Indexers{})
		err := informer.SetTransform(func(o any) (any, error) { // full objects in every store would exhaust the memory
			m := o.(metav1.Object)
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: m.GetNamespace(), Name: m.GetName(), ResourceVersion: m.GetResourceVersion(), Labels: map[string]string{"changed": m.GetLabels()["changed"]},
			}}, nil
		})
		if err != nil {
			b.Fatal(err)
		}
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, now any) {
			if before.(metav1.Object).GetLabels()["changed"] == "" && now.(metav1.Object).GetLabels()["changed"] != "" {
				seen.Add(1)
			}
		}})
		if err != nil {
			b.Fatal(err)
		}
		synced, stores = append(synced, handler.HasSynced), append(stores, informer.GetStore())
		running.Go(func() { informer.RunWithContext(ctx) })
		if n := len(synced) - *benchAtOnce; n >= 0 && !cache.WaitForCacheSync(ctx.Done(), synced[n]) {
			b.Fatal("a reader has not synced")
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		b.Fatal("the readers have not synced")
	}
	var last *corev1.Pod
	for _, p := range all[:benchChanges] {
		patch := []byte(`{"metadata":{"labels":{"changed":"yes"}}}`)
		if last, err = client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	poll.Try(b, "each reader has seen each change", func(context.Context) error {
		if n := seen.Load(); n != int64(readers)*benchChanges {
			return fmt.Errorf("%d of %d", n, int64(readers)*benchChanges)
		}
		return nil
	})
	b.StopTimer()
	defer b.StartTimer()
	cpuNow, bytesNow := apiServerCost(b, client)
	took := time.Since(began)
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	if _, onTheBus := lw.(*replica.ListerWatcher); onTheBus {
		equalAtPoint(b, client, stores, last.ResourceVersion)
	}
	b.ReportMetric(float64(readers), "readers")
	b.ReportMetric(took.Seconds(), "seconds")
	b.ReportMetric(float64(memory.HeapAlloc)/float64(readers**benchPods), "heap-B/pod/reader")
	b.ReportMetric(float64(memory.Sys)/1e6, "process-MB")
	b.ReportMetric(idle*1000, "api-server-idle-cpu-ms/s")
	b.ReportMetric((cpuNow-cpu)/float64(b.N), "api-server-cpu-s/op")
	b.ReportMetric((bytesNow-bytes)/1e6/float64(b.N), "api-server-MB/op")
	b.ReportMetric((cpuNow-cpu)*1000/float64(readers), "api-server-cpu-ms/reader")
	b.ReportMetric((bytesNow-bytes)/1e6/float64(readers), "api-server-MB/reader")
}

// equalAtPoint waits until each store has reached a version. Then it compares the store with the
// API server at the version of the store's consistency point. No object may change meanwhile.
func equalAtPoint(b *testing.B, client kubernetes.Interface, stores []cache.Store, version string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	lists := map[string]map[string]string{} // resource versions by pod, by the version of the list
	for _, store := range stores {
		p, err := replica.WaitForResourceVersion(ctx, store, version)
		if err != nil {
			b.Fatal(err)
		}
		if lists[p.ResourceVersion] == nil {
			list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: p.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
			if err != nil {
				b.Fatal(err)
			}
			lists[p.ResourceVersion] = map[string]string{}
			for _, pod := range list.Items {
				lists[p.ResourceVersion][pod.Namespace+"/"+pod.Name] = pod.ResourceVersion
			}
		}
		has := map[string]string{}
		for _, o := range store.List() {
			m := o.(metav1.Object)
			has[m.GetNamespace()+"/"+m.GetName()] = m.GetResourceVersion()
		}
		if want := lists[p.ResourceVersion]; !maps.Equal(has, want) {
			b.Fatalf("a store with %d pods differs from the API server with %d at %s", len(has), len(want), p.ResourceVersion)
		}
	}
}

func fillPods(b *testing.B, client kubernetes.Interface) (all []*corev1.Pod) {
	b.Helper()
	for _, name := range pods.Namespaces() {
		if _, err := client.CoreV1().Namespaces().Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(8)
	for i := range *benchPods {
		p := pods.Pod(7, i)
		all = append(all, p)
		group.Go(func() error {
			_, err := client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return all
}

// idleWindow is long enough to measure the CPU time of an idle API server.
const idleWindow = 20 * time.Second

// apiServerIdle returns the CPU seconds per second that an API server without readers uses.
func apiServerIdle(b *testing.B, client kubernetes.Interface) float64 {
	b.Helper()
	before, _ := apiServerCost(b, client)
	select {
	case <-time.After(idleWindow):
	case <-b.Context().Done():
	}
	after, _ := apiServerCost(b, client)
	return (after - before) / idleWindow.Seconds()
}

// apiServerCost returns the API server's CPU time in seconds, and the bytes of pod lists and pod
// watch events that it has sent, before compression.
func apiServerCost(b *testing.B, client kubernetes.Interface) (cpu, sent float64) {
	b.Helper()
	text, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	found := 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		name, value := line[:strings.LastIndexByte(line, ' ')+1], line[strings.LastIndexByte(line, ' ')+1:]
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
		case strings.HasPrefix(name, "process_cpu_seconds_total"):
			cpu = n
			found++
		case strings.HasPrefix(name, "apiserver_response_sizes_sum") && strings.Contains(name, `resource="pods"`) && strings.Contains(name, `verb="LIST"`),
			strings.HasPrefix(name, "apiserver_watch_events_sizes_sum") && strings.Contains(name, `"pods"`):
			sent += n
			found++
		}
	}
	if found < 1 {
		b.Fatal("the API server does not report its CPU time and bytes")
	}
	return cpu, sent
}
