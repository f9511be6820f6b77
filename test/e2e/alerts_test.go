package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// alerting contains the chart's alerting rules and records the alerts that have fired.
type alerting struct {
	t     *testing.T
	rules string
	fired map[string]bool
}

// fault checks that no alert fires before a fault, and that exactly the wanted alerts fire because
// of it. The function plant causes the fault and waits until the metrics show it.
//
// Only the metrics are real. The timeline repeats a scrape to simulate a lasting state, for half an
// hour before the fault and half an hour after plant. For a fault that must continue to change the
// metrics, plant itself scrapes several times.
func (a *alerting) fault(name string, of []*forwarder, plant func(h *timeline), want ...string) {
	a.t.Helper()
	h := &timeline{t: a.t, of: of}
	h.scrape(30)
	planted := h.minute
	plant(h)
	h.scrape(30)
	before, after := h.fired(a.rules, planted)
	slices.Sort(want)
	if len(before) > 0 {
		a.t.Errorf("%s: without the fault, %q fire", name, before)
	}
	if !slices.Equal(after, want) {
		a.t.Errorf("%s: %q fire, want %q", name, after, want)
	}
	for _, alert := range after {
		a.fired[alert] = true
	}
}

// alertsLab is a cluster, a bus, and a forwarder between them.
type alertsLab struct {
	t         *testing.T
	u         *user
	namespace string
	bus       *natstest.Process
	js        jetstream.JetStream
	f         *forwarder
	objects   int
}

// change creates an object.
func (l *alertsLab) change() {
	l.t.Helper()
	l.objects++
	l.u.create(configMaps, l.namespace, configMap(fmt.Sprintf("change-%d", l.objects), "1"))
}

// TestAlerts_Slow plants one fault after the other. It verifies that at least one fault fires each alert
// of the chart, and that no fault fires an unrelated alert.
//
// The test lowers the limits of the alerts, so that the faults show sooner. A condition must hold
// for 5 minutes instead of 15. The limit for unpublished changes is 1 s instead of 60 s. Where a
// fault needs it, the limit for the lag is 3 s instead of 60 s, and the limit for the age of a
// consistency point is 5 s instead of 15 minutes.
func TestAlerts_Slow(t *testing.T) {
	go func() { _, _ = program() }() // compiles the program in the background
	a := &alerting{t: t, rules: chartRules(t, "prometheusRule.for=5m", "prometheusRule.thresholds.unsentSeconds=1"), fired: map[string]bool{}}
	busAlerts(t, a)
	slowAlerts(t, a.fired)
	accessAlerts(t, a)
	for _, name := range alertNames(t, a.rules) {
		if !a.fired[name] {
			t.Errorf("no fault has fired %s", name)
		}
	}
}

func newAlertsLab(t *testing.T) *alertsLab {
	t.Helper()
	cp := cluster.ControlPlane(t)
	l := &alertsLab{t: t, u: newUser(t, cp), bus: natstest.StartProcess(t, "max_payload: 65536")}
	l.namespace = quietNamespace(t, l.u)
	nc, err := natsgo.Connect(l.bus.URL, natsgo.MaxReconnects(-1), natsgo.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if l.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(limit)); err != nil {
		t.Fatal(err)
	}
	l.f = newForwarder(t, cp.Kubeconfig(), l.bus.URL, l.settings())
	l.f.start().idle()
	return l
}

func (l *alertsLab) settings() map[string]string {
	return map[string]string{
		"RESOURCES": "configmaps,services", "NAMESPACES": l.namespace, "RESOLVED_INTERVAL": "1s", "CHECKPOINT_REFRESH": "1s", "NATS_ACK_TIMEOUT": "30s",
		"FILTER": `resource.resource != "configmaps" || size(object.data) > 0`, // fails for a ConfigMap without data
	}
}

func (l *alertsLab) stream() jetstream.Stream {
	l.t.Helper()
	s, err := l.js.Stream(l.t.Context(), "KUBERELAY")
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// busAlerts plants faults of the bus, of discovery and of objects.
func busAlerts(t *testing.T, a *alerting) {
	l := newAlertsLab(t)
	f := l.f
	alone := []*forwarder{f}

	a.fault("an object that the filter can't judge", alone, func(*timeline) {
		l.u.create(configMaps, l.namespace, "{apiVersion: v1, kind: ConfigMap, metadata: {name: empty}}")
		f.reaches("kuberelay_filter_errors_total", 1)
	}, "KuberelayFilterFailing")

	a.fault("an object that is too large", alone, func(*timeline) {
		l.u.create(configMaps, l.namespace, configMap("large", strings.Repeat("x", 100_000)))
		f.reaches("kuberelay_events_truncated_total", 1)
		f.idle()
	}, "KuberelayObjectTruncated")

	const name = "v1.nobody.example.com"
	remove := func() { _ = l.u.of(apiServices, "").Delete(context.Background(), name, metav1.DeleteOptions{}) }
	t.Cleanup(remove)
	a.fault("an APIService without a back end", alone, func(*timeline) {
		l.u.create(apiServices, "", `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: `+name+`}
spec: {group: nobody.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true, service: {namespace: default, name: nobody}}`)
		f.awaitMetric(`kuberelay_discovery_failing{group="nobody.example.com"} 1`, true)
	}, "KuberelayDiscoveryFailing")
	remove()
	f.awaitMetric("kuberelay_discovery_failing{", false)

	a.fault("an event that somebody purged", alone, func(*timeline) {
		l.u.create(configMaps, l.namespace, configMap("purged", "1"))
		f.idle()
		if err := l.stream().Purge(t.Context(), jetstream.WithPurgeSubject(subject(configMaps, l.namespace, "purged"))); err != nil {
			t.Fatal(err)
		}
		f.reaches("kuberelay_bus_lost_total", 1)
		f.idle()
	}, "KuberelayBusLostEvents")

	a.fault("a forged delete", alone, func(*timeline) {
		l.u.create(configMaps, l.namespace, configMap("forged", "1"))
		f.idle()
		genuine, err := l.stream().GetLastMsgForSubject(t.Context(), subject(configMaps, l.namespace, "forged"))
		if err != nil {
			t.Fatal(err)
		}
		forged := natsgo.NewMsg(genuine.Subject)
		forged.Data = genuine.Data
		for name := range genuine.Header {
			if strings.HasPrefix(name, "ce-") {
				forged.Header.Set(name, genuine.Header.Get(name))
			}
		}
		forged.Header.Set("ce-type", "io.kuberelay.object.deleted")
		if _, err := l.js.PublishMsg(t.Context(), forged); err != nil {
			t.Fatal(err)
		}
		f.reaches("kuberelay_foreign_events_total", 1)
		f.idle()
	}, "KuberelayForeignEvents")

	a.fault("a message that is not an event", alone, func(*timeline) {
		if _, err := l.js.Publish(t.Context(), subject(configMaps, l.namespace, "garbage"), []byte("garbage")); err != nil {
			t.Fatal(err)
		}
		f.reaches("kuberelay_invalid_messages_total", 1)
		f.idle()
	}, "KuberelayInvalidMessages")

	a.fault("an unavailable bus", alone, func(*timeline) {
		l.bus.Kill()
		f.falls("kuberelay_nats_connected", 0)
		l.change()
		f.reaches("kuberelay_oldest_unsent_change_seconds", 2)
	}, "KuberelayBehind", "KuberelayBusAway")
	l.bus.Start()
	f.idle()

	a.fault("a stream that is full", alone, func(h *timeline) {
		refill := l.limit(1)
		for n := range 3 {
			l.change()
			f.reaches(`kuberelay_nats_publishes_total\{result="full"\}`, f.metric(`kuberelay_nats_publishes_total\{result="full"\}`)+1)
			if n < 2 {
				h.scrape(4)
			}
		}
		f.reaches("kuberelay_oldest_unsent_change_seconds", 2)
		h.scrape(6) // more than a window of the rules
		t.Cleanup(refill)
	}, "KuberelayBehind", "KuberelayPublishRejected")
	l.limit(-1)
	f.idle()

	second := newForwarder(t, cluster.ControlPlane(t).Kubeconfig(), l.bus.URL, l.settings())
	second.start().idle()
	both := []*forwarder{f, second}
	unexpected := func() float64 {
		n := 0.0
		for _, f := range both {
			n += f.metric(`kuberelay_nats_publishes_total\{result="(?:already_stored|conflict)"\}`)
		}
		return n
	}
	a.fault("a second forwarder without leader election", both, func(h *timeline) {
		for range 4 {
			before := unexpected()
			poll.Try(t, "both publish the same change", func(context.Context) error {
				l.change()
				if unexpected() == before {
					return fmt.Errorf("only one does")
				}
				return nil
			})
			h.scrape(4)
		}
	}, "KuberelayAnotherWriter")
	second.stop()

	a.fault("a forwarder that is killed", alone, func(*timeline) { f.kill() }, "KuberelayDown")

	start := func(variables ...string) {
		t.Helper()
		f.kill()
		if err := f.Start(variables...); err != nil {
			t.Fatal(err)
		}
		f.idle()
	}
	start()
	a.fault("a forwarder that is killed again and again", alone, func(h *timeline) {
		for range 3 {
			start()
			h.scrape(1)
		}
	}, "KuberelayRestarting")
	a.fault("a memory limit that is too low", alone, func(*timeline) { start("GOMEMLIMIT=4MiB") }, "KuberelayMemoryLow")
}

// limit sets the maximum number of messages in the stream and returns a function that removes the
// limit.
func (l *alertsLab) limit(messages int64) (remove func()) {
	l.t.Helper()
	set := func(ctx context.Context, messages int64) error {
		s, err := l.js.Stream(ctx, "KUBERELAY")
		if err != nil {
			return err
		}
		c := s.CachedInfo().Config
		c.MaxMsgs = messages
		_, err = l.js.UpdateStream(ctx, c)
		return err
	}
	if err := set(l.t.Context(), messages); err != nil {
		l.t.Fatal(err)
	}
	return func() { _ = set(context.Background(), -1) }
}
