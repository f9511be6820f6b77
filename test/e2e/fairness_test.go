package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// BenchmarkFairness measures the latency of a change in one of fifty quiet namespaces, from the API
// server's response until a subscriber receives the event. It first measures without other load, and
// then while another namespace changes more objects than the bus can accept. The link from the
// forwarder to the bus has a limited bandwidth. Run the benchmark with -benchtime 1x.
func BenchmarkFairness(b *testing.B) {
	const (
		quiet, hot, size = 50, 3000, 4000 // namespaces, objects in the hot namespace, and the size of each in bytes
		bandwidth        = 2 << 20        // bytes per second
		changes          = 300            // in quiet namespaces, per phase
	)
	cp := cluster.ControlPlane(b)
	config := rest.CopyConfig(cp.Config())
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	bus := natstest.StartProcess(b)
	server, err := url.Parse(bus.URL)
	if err != nil {
		b.Fatal(err)
	}
	arrivals := subscribeToArrivals(b, bus.URL)
	create := func(namespace, name string, size int) {
		data := make([]byte, size/2) // a compressor can at best halve the hexadecimal text
		for i := range data {
			data[i] = byte(rand.Int())
		}
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"data": fmt.Sprintf("%x", data)}}
		if _, err := client.CoreV1().ConfigMaps(namespace).Create(b.Context(), o, metav1.CreateOptions{}); err != nil {
			b.Error(err)
		}
	}
	patch := func(ctx context.Context, namespace, name string, n int) (version string, err error) {
		text := fmt.Appendf(nil, `{"metadata":{"labels":{"changed":"%d"}}}`, n)
		o, err := client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{})
		if err != nil {
			return "", err
		}
		return o.ResourceVersion, nil
	}
	var namespaces []string
	for range quiet {
		namespaces = append(namespaces, controlplanetest.Namespace(b, cp))
		create(namespaces[len(namespaces)-1], "settings", 100)
	}
	busy := controlplanetest.Namespace(b, cp)
	var creating sync.WaitGroup
	for g := range 8 {
		creating.Go(func() {
			for n := g; n < hot; n += 8 {
				create(busy, fmt.Sprint("c", n), size)
			}
		})
	}
	creating.Wait()
	address, err := harness.FreePort()
	if err != nil {
		b.Fatal(err)
	}
	f := harness.New(harness.Options{
		Binary: binary, Dir: b.TempDir(), Address: address, Kubeconfig: cp.Kubeconfig(), NATSURL: "nats://" + slowLink(b, server.Host, bandwidth), Cluster: clusterName,
		Set: map[string]string{"RESOURCES": "configmaps", "NAMESPACES": strings.Join(append(namespaces, busy), ",")},
	})
	if err := f.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Kill)
	poll.Try(b, "the first sync is published", f.Idle)

	latencies := func() (p50, p99 time.Duration) {
		var all []time.Duration
		for n := range changes {
			namespace := namespaces[n%quiet]
			version, err := patch(b.Context(), namespace, "settings", n)
			if err != nil {
				b.Fatal(err)
			}
			begun := time.Now()
			arrivals.expect(namespace, version, func(at time.Time) { all = append(all, at.Sub(begun)) })
			time.Sleep(50 * time.Millisecond) // limits the rate of changes
		}
		poll.Try(b, "every change is on the bus", arrivals.done)
		slices.Sort(all)
		return all[len(all)/2], all[len(all)*99/100]
	}
	for b.Loop() {
		aloneP50, aloneP99 := latencies()
		ctx, cancel := context.WithCancel(b.Context())
		var changing sync.WaitGroup
		for g := range 8 {
			changing.Go(func() {
				for n := g; ctx.Err() == nil; n += 8 {
					if _, err := patch(ctx, busy, fmt.Sprint("c", n%hot), n); err != nil && ctx.Err() == nil {
						b.Error(err)
					}
				}
			})
		}
		poll.Try(b, "changes of the hot namespace wait", func(ctx context.Context) error {
			if n, err := f.Metric(ctx, "kuberelay_dirty_objects"); err != nil || n < hot/2 {
				return fmt.Errorf("%v objects are dirty: %w", n, err)
			}
			return nil
		})
		hotP50, hotP99 := latencies()
		cancel()
		changing.Wait()
		b.ReportMetric(float64(aloneP50.Milliseconds()), "alone-p50-ms")
		b.ReportMetric(float64(aloneP99.Milliseconds()), "alone-p99-ms")
		b.ReportMetric(float64(hotP50.Milliseconds()), "hot-p50-ms")
		b.ReportMetric(float64(hotP99.Milliseconds()), "hot-p99-ms")
		b.ReportMetric(hotP99.Seconds()/aloneP99.Seconds(), "p99-ratio")
	}
}

// arrivals matches the messages on a bus with expected versions. A later version of the object
// counts too, because rapid changes can arrive as one event.
type arrivals struct {
	mu      sync.Mutex
	last    map[string]arrival // by namespace
	waiting map[string][]arrival
}

type arrival struct {
	version uint64
	at      time.Time
	then    func(time.Time)
}

func subscribeToArrivals(b *testing.B, url string) *arrivals {
	a := &arrivals{last: map[string]arrival{}, waiting: map[string][]arrival{}}
	conn, err := nats.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	if _, err := conn.Subscribe("kuberelay.>", func(m *nats.Msg) {
		got, namespace := arrival{version: number(m.Header.Get("ce-resourceversion")), at: time.Now()}, m.Header.Get("ce-namespace")
		a.mu.Lock()
		defer a.mu.Unlock()
		a.last[namespace] = got
		all := a.waiting[namespace]
		for len(all) > 0 && all[0].version <= got.version {
			all[0].then(got.at)
			all = all[1:]
		}
		a.waiting[namespace] = all
	}); err != nil {
		b.Fatal(err)
	}
	return a
}

// expect calls then with the time at which the version, or a later one, arrives. The version may
// have arrived already.
func (a *arrivals) expect(namespace, version string, then func(time.Time)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := number(version)
	if last := a.last[namespace]; last.version >= v {
		then(last.at)
		return
	}
	a.waiting[namespace] = append(a.waiting[namespace], arrival{version: v, then: then})
}

func (a *arrivals) done(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for namespace, all := range a.waiting {
		if len(all) > 0 {
			return fmt.Errorf("%d versions have not arrived in %s", len(all), namespace)
		}
	}
	return nil
}

// slowLink forwards connections to target and limits the rate of bytes from the clients.
func slowLink(b *testing.B, target string, bytesPerSecond int) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			_ = client.(*net.TCPConn).SetReadBuffer(64 << 10)
			go func() {
				defer client.Close()
				_, _ = io.Copy(client, server)
			}()
			go func() {
				defer server.Close()
				buffer, next := make([]byte, 8<<10), time.Now()
				for {
					n, err := client.Read(buffer)
					if _, failed := server.Write(buffer[:n]); err != nil || failed != nil {
						return
					}
					if now := time.Now(); next.Before(now) {
						next = now
					}
					next = next.Add(time.Duration(n) * time.Second / time.Duration(bytesPerSecond))
					time.Sleep(time.Until(next))
				}
			}()
		}
	}()
	return l.Addr().String()
}
