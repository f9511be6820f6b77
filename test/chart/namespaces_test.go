package chart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestNamespacesWhileDown verifies that the chart's permissions suffice to find the namespaces that were
// removed or relabeled while the forwarder was down. An earlier version needed get on namespaces, which
// the chart does not grant. It also waited for access to a removed namespace, whose Role was gone. The
// deletes of the objects in a removed namespace were never published.
func TestNamespacesWhileDown(t *testing.T) {
	t.Run("by labels", func(t *testing.T) { testNamespacesWhileDown(t, true) })
	t.Run("by name", func(t *testing.T) { testNamespacesWhileDown(t, false) })
}

func testNamespacesWhileDown(t *testing.T, byLabels bool) {
	s := newAPIServer(t)
	removed := s.namespace(t, "removed", map[string]string{"team": "down"})
	relabeled := s.namespace(t, "relabeled", map[string]string{"team": "down"})
	nats := natstest.Start(t)
	release := s.namespace(t, "kuberelay", restricted)
	stream := "CHART_" + strings.ToUpper(strings.ReplaceAll(release, "-", "_"))
	config := values{
		"resources": []string{"configmaps"}, "namespaceSelector": "team=down", "clusterName": release, "natsUrl": []string{nats.URL},
		"natsStream": stream, "natsSubjectPrefix": release, "listenAddr": freeAddress(t),
	}
	if !byLabels {
		delete(config, "namespaceSelector")
		config["namespaces"] = []string{removed, relabeled}
	}
	m := render(t, release, values{"config": config})
	if err := s.apply(t, release, m); err != nil {
		t.Fatal(err)
	}
	account := m.podTemplate(t).Spec.ServiceAccountName
	kubeconfig := s.kubeconfig(t, release, account, m)
	for _, namespace := range []string{removed, relabeled} {
		s.create(t, namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}`)
	}
	await := func(want ...string) {
		t.Helper()
		recorder, err := harness.RecordNATS(nats.URL, stream)
		if err != nil {
			t.Fatal(err)
		}
		defer recorder.Close()
		poll.Try(t, fmt.Sprintf("the bus has %v", want), func(ctx context.Context) error {
			if err := recorder.CatchUp(ctx, limit); err != nil {
				return err
			}
			all, _, err := recorder.All()
			if err != nil {
				return err
			}
			var types []string
			for _, r := range all {
				if namespace := r.Attributes["namespace"]; namespace == removed || namespace == relabeled {
					kind := strings.TrimPrefix(r.Attributes["type"], "io.kuberelay.object.")
					types = append(types, kind+" "+map[bool]string{true: "removed", false: "relabeled"}[namespace == removed])
				}
			}
			if slices.Sort(types); !slices.Equal(types, want) {
				return fmt.Errorf("it has %v", types)
			}
			return nil
		})
	}
	f := start(t, m.environment(t), kubeconfig)
	await("snapshot relabeled", "snapshot removed")
	stop(t, f)

	namespaces := s.client.CoreV1().Namespaces()
	_, err := namespaces.Patch(t.Context(), relabeled, "application/merge-patch+json", []byte(`{"metadata": {"labels": {"team": "other"}}}`), metav1.PatchOptions{})
	// No namespace controller runs.
	revoked := s.client.RbacV1().RoleBindings(removed).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	gone := s.client.CoreV1().ConfigMaps(removed).Delete(t.Context(), "web", metav1.DeleteOptions{})
	if err := errors.Join(err, revoked, gone, namespaces.Delete(t.Context(), removed, metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	ns, err := namespaces.Get(t.Context(), removed, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil
	if _, err := namespaces.Finalize(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	f = start(t, m.environment(t), kubeconfig)
	if byLabels {
		await("deleted removed", "deselected relabeled", "snapshot relabeled", "snapshot removed")
	} else {
		await("deleted removed", "snapshot relabeled", "snapshot removed")
	}
	stop(t, f)
	if _, refused := requests(t, "system:serviceaccount:"+release+":"+account); len(refused) > 0 {
		t.Errorf("the API server refused %v", refused)
	}
	if _, out, stderr, err := f.Run(t.Context(), "check", "--memory-limit=1Gi", "--timeout=1m"); err != nil || !strings.Contains(out, "the user may read the namespaces") {
		t.Errorf("forwarder check: %v, %s%s", err, out, stderr)
	}
}
