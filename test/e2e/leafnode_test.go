package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/replica"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// leafNode starts a hub and a leaf node, each with its own JetStream domain, and returns the leaf.
func leafNode(t *testing.T) *natstest.Server {
	t.Helper()
	port := natstest.FreePort(t)
	natstest.Start(t, func(o *server.Options) {
		o.JetStreamDomain, o.LeafNode.Host, o.LeafNode.Port = "hub", "127.0.0.1", port
	})
	remote := &server.RemoteLeafOpts{URLs: []*url.URL{{Scheme: "nats-leaf", Host: fmt.Sprintf("127.0.0.1:%d", port)}}}
	return natstest.Start(t, func(o *server.Options) {
		o.JetStreamDomain, o.LeafNode.Remotes = "leaf", []*server.RemoteLeafOpts{remote}
	})
}

// TestLeafNode_Slow verifies a forwarder and readers that connect to a leaf node, while the stream is in
// the hub's domain. The readers also read a mirror of the stream in the leaf's domain.
func TestLeafNode_Slow(t *testing.T) {
	leaf := leafNode(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	hub := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "NATS_JETSTREAM_DOMAIN": "hub", "RESOLVED_INTERVAL": "1s"}
	f := newForwarder(t, cp.Kubeconfig(), leaf.URL, hub)
	for _, name := range []string{"a", "deleted"} {
		u.create(configMaps, namespace, configMap(name, "1"))
	}
	f.start().idle()
	u.delete(configMaps, namespace, "deleted")
	f.clean()
	inspected(t, f)

	js, err := jetstream.NewWithDomain(jetStream(t, leaf.URL).Conn(), "leaf")
	var copied jetstream.Stream
	if err == nil {
		copied, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "MIRROR", Mirror: &jetstream.StreamSource{Name: "KUBERELAY", Domain: "hub"}, MaxMsgsPerSubject: 8,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Stream(t.Context(), "KUBERELAY"); err == nil {
		t.Error("the stream is in the domain of the leaf")
	}
	poll.Try(t, "the mirror has the delete", func(ctx context.Context) error {
		last, err := copied.GetLastMsgForSubject(ctx, subject(configMaps, namespace, "deleted"))
		if err == nil && last.Header.Get("ce-type") != "io.kuberelay.object.deleted" {
			err = fmt.Errorf("its last event is %s", last.Header.Get("ce-type"))
		}
		return err
	})
	mirror := newForwarder(t, cp.Kubeconfig(), leaf.URL, merged(hub, map[string]string{"NATS_JETSTREAM_DOMAIN": "leaf", "NATS_STREAM": "MIRROR"}))
	readFrom(t, f, replica.NATSOptions{URLs: []string{leaf.URL}, Domain: "hub"}, namespace)
	readFrom(t, mirror, replica.NATSOptions{URLs: []string{leaf.URL}, Domain: "leaf", Stream: "MIRROR"}, namespace)
	u.label(configMaps, namespace, "a", "later")
	f.idle()
	if code, stdout, stderr := mirror.run("verify", settle); code != 0 || !strings.Contains(stdout, "0 differences") {
		t.Errorf("verify of the mirror ended with %d:\n%s%s", code, stdout, stderr)
	}

	// A forwarder must refuse to write to a mirror.
	if err := mirror.Start(); err != nil {
		t.Fatal(err)
	}
	poll.Try(t, "the forwarder refuses the mirror", func(context.Context) error {
		if mirror.Running() || !strings.Contains(mirror.log(), "mirror is true, should be false") {
			return fmt.Errorf("it has not: %s", mirror.LogTail(3))
		}
		return nil
	})
	f.stop()
}

// inspected checks that "forwarder check" finds the stream.
func inspected(t *testing.T, f *forwarder) {
	t.Helper()
	_, stdout, stderr := f.run("check", "--output=json")
	var report check.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	streams := 0
	for _, r := range report.Checks {
		if strings.HasPrefix(r.ID, "nats-stream") && r.Status == check.OK {
			streams++
		}
		if strings.HasPrefix(r.ID, "nats-") && r.Status == check.Failed {
			t.Errorf("check: %+v", r)
		}
	}
	if streams == 0 {
		t.Errorf("check has not found the stream:\n%s", stdout)
	}
}

// readFrom checks that the commands get and tail and package replica read the stream.
func readFrom(t *testing.T, f *forwarder, o replica.NATSOptions, namespace string) {
	t.Helper()
	if code, stdout, stderr := f.run("get", "configmaps", "-n", namespace); code != 0 || !strings.Contains(stdout, "\na ") || strings.Contains(stdout, "deleted") {
		t.Errorf("get ended with %d:\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := f.run("tail", "--last", "--no-follow", "-n", namespace); code != 0 || !strings.Contains(stdout, namespace+"/a") || !strings.Contains(stdout, "deleted") {
		t.Errorf("tail ended with %d:\n%s%s", code, stdout, stderr)
	}
	bus, err := replica.NATS(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	list, err := bus.ListerWatcher(configMaps, replica.Options{Cluster: clusterName, Namespace: namespace}).ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		a, err := meta.Accessor(o)
		if err == nil {
			names = append(names, a.GetName())
		}
		return err
	}); err != nil || !slices.Contains(names, "a") || slices.Contains(names, "deleted") {
		t.Errorf("replica lists %q (%v), want a and not deleted", names, err)
	}
}
