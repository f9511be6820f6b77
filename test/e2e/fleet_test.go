package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// fleetForwarder returns a forwarder for several clusters. It isn't started.
func fleetForwarder(t *testing.T, bus fleetBus, kubeconfig string, more map[string]string) *forwarder {
	t.Helper()
	set := map[string]string{"RESOURCES": "configmaps,machines.cluster.x-k8s.io,nodes", "EXCLUDE_NAMESPACES": "kube-system", "CLUSTER_NAME": ""}
	maps.Copy(set, bus.set)
	maps.Copy(set, more)
	f := newForwarder(t, kubeconfig, bus.url, set)
	f.watched = true // skips the check at rest, because the forwarder retries a cluster that is down
	return f
}

// crd returns a minimal CustomResourceDefinition of Cluster API.
func crd(kind, plural string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.cluster.x-k8s.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: cluster.x-k8s.io
  scope: Namespaced
  names: {kind: %[1]s, plural: %[2]s, singular: %[3]s, listKind: %[1]sList}
  versions:
  - name: v1beta2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, kind, plural, strings.TrimSuffix(plural, "s"))
}

// addCRD creates a definition and waits until the API server serves its objects.
func (m *member) addCRD(kind, plural string) {
	m.t.Helper()
	m.create(gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "", crd(kind, plural))
	poll.Try(m.t, plural+" are served", func(ctx context.Context) error {
		_, err := m.of(gvr("cluster.x-k8s.io", "v1beta2", plural), shared).List(ctx, metav1.ListOptions{})
		return err
	})
}

// awaitCluster waits until the forwarder copies the cluster (want 1), can't copy it (want 0), or
// doesn't have it (want -1).
func (f *forwarder) awaitCluster(name string, want float64) {
	f.t.Helper()
	f.await(fmt.Sprintf("kuberelay_cluster_up of %s is %v", name, want), func(ctx context.Context) error {
		got, err := f.Metric(ctx, `kuberelay_cluster_up\{cluster="`+name+`"\}`)
		switch {
		case err != nil && want == -1 && strings.Contains(err.Error(), "no metric"):
			return nil
		case err != nil:
			return err
		case got != want:
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}

// awaitObject waits until the bus has an event for the named object of a cluster, whatever its
// resource.
func (b fleetBus) awaitObject(t *testing.T, cluster, name string) {
	t.Helper()
	poll.Try(t, "the bus has "+name+" of "+cluster, func(context.Context) error {
		for key := range b.all() {
			if strings.Contains(key, cluster) && strings.HasSuffix(key, name) {
				return nil
			}
		}
		return errors.New("it does not")
	})
}

// exact runs verify for one of the forwarder's clusters. It checks that the events of each object
// are in order and that no event is repeated.
func (b fleetBus) exact(t *testing.T, m *member, f *forwarder) {
	t.Helper()
	if code, out, errs := f.run("verify", settle, "--cluster="+m.name); code != 0 || !strings.Contains(out, "0 differences") {
		t.Errorf("verify of %s ended with %d:\n%s%s", m.name, code, out, errs)
	}
	for name, events := range b.objects(m.name) {
		checkEvents(t, m.name+"/"+name, events)
	}
}

// awaitPage waits until the stream of a cluster's status page contains text. The cluster "" selects
// the page for all clusters.
func (f *forwarder) awaitPage(cluster, text string) {
	f.t.Helper()
	f.await("the page of "+cluster+" gets "+text, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.Address()+"/api/v1/status/stream?cluster="+cluster, http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			if strings.Contains(lines.Text(), text) {
				return nil
			}
		}
		return errors.New("the stream ended without it")
	})
}

// checkClusters runs check. The command must fail for exactly the clusters whose value in want is
// false.
func (f *forwarder) checkClusters(want map[string]bool) {
	f.t.Helper()
	run := func(args ...string) (report check.Report, code int) {
		code, out, errs := f.run(append([]string{"check", "--output=json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &report); err != nil || report.Status.Code() != code {
			f.t.Errorf("check %q ended with %d: %v\n%s%s", args, code, err, out, errs)
		}
		return report, code
	}
	report, code := run()
	got := map[string]bool{}
	for _, c := range report.Clusters {
		got[c.Cluster] = c.Status != check.Failed
	}
	if code != 2 || !maps.Equal(got, want) {
		f.t.Errorf("check ended with %d, and found %v, want %v", code, got, want)
	}
	for name, well := range want {
		one, code := run("--cluster=" + name)
		if (code < 2) != well || one.Cluster != name || len(one.Checks) == 0 {
			f.t.Errorf("check of %s ended with %d: %+v", name, code, one)
		}
	}
}

// writeFile replaces a file atomically.
func writeFile(t *testing.T, path string, content string) {
	t.Helper()
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(hidden, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(hidden, path); err != nil {
		t.Fatal(err)
	}
}

// TestOneForwarderOfSeveralClusters_Slow verifies that one forwarder copies the two clusters in a directory
// of kubeconfigs. A cluster that appears, is broken, hangs, ends or is removed must not affect the
// other.
func TestOneForwarderOfSeveralClusters_Slow(t *testing.T) {
	management, workload := newMember(t, "management"), newMember(t, "workload-1")
	management.addCRD("Machine", "machines")
	machines, nodes := gvr("cluster.x-k8s.io", "v1beta2", "machines"), gvr("", "v1", "nodes")
	management.create(machines, shared, "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Machine\nmetadata: {name: machine-a}\nstatus: {nodeRef: {name: node-a}}")
	workload.create(nodes, "", "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}")
	onFleets(t, "directory", func(t *testing.T, bus fleetBus) {
		management, workload := management.in(t), workload.in(t)
		dir := t.TempDir()
		file := filepath.Join(dir, "workload-1.yaml")
		writeFile(t, filepath.Join(dir, "management.kubeconfig"), readFile(t, management.cp.Kubeconfig()))
		f := fleetForwarder(t, bus, "", map[string]string{"KUBECONFIG_DIR": dir}).start().ready()
		bus.awaitObject(t, "management", "machine-a")

		writeFile(t, file, readFile(t, workload.cp.Kubeconfig()))
		writeFile(t, filepath.Join(dir, "broken.yaml"), "token: hunter2\n")
		bus.awaitObject(t, "workload-1", "node-a")
		f.awaitCluster("broken", 0)
		_, table, _ := f.run("status")
		for _, part := range []string{"broken: ", "not a kubeconfig", "management", "workload-1"} {
			if !strings.Contains(table, part) {
				t.Errorf("status does not have %q:\n%s", part, table)
			}
		}
		if strings.Contains(table+f.log(), "hunter2") {
			t.Error("the log or the status has the content of a kubeconfig")
		}
		f.awaitPage("", `"cluster":"broken","level":"critical"`)
		f.awaitPage("workload-1", `"resource":"nodes","name":"node-a"`)
		f.checkClusters(map[string]bool{"broken": false, "management": true, "workload-1": true})
		for _, m := range []*member{management, workload} {
			if code, out, _ := f.run("status", "--cluster="+m.name); code == 2 || !strings.Contains(out, "cluster:   "+m.name) {
				t.Errorf("status of %s ended with %d:\n%s", m.name, code, out)
			}
			bus.exact(t, m, f)
			// get ends with 1 if it finds no object.
			if code, out, errs := f.run("get", "nodes", "--cluster="+m.name); code > 1 || strings.Contains(out, "node-a") != (m == workload) {
				t.Errorf("get of %s ended with %d:\n%s%s", m.name, code, out, errs)
			}
		}
		if code, _, errs := f.run("verify"); code != 2 || !strings.Contains(errs, "--cluster") {
			t.Errorf("verify without a cluster ended with %d: %s", code, errs)
		}

		if bus.connections != nil {
			poll.Try(t, "the clusters share one connection", func(context.Context) error {
				if names := bus.connections(); len(names) != 1 || names[0] != "kuberelay" {
					return fmt.Errorf("there are %q", names)
				}
				return nil
			})
		}

		// changes creates objects in the management cluster and waits until the bus has an event for
		// each.
		round := 0
		changes := func() {
			for range 5 {
				round++
				name := fmt.Sprintf("c%d", round)
				management.create(configMaps, shared, configMap(name, "1"))
				bus.awaitKinds(t, "management", name, "created")
			}
		}
		if err := workload.cp.PauseAPIServer(); err != nil {
			t.Fatal(err)
		}
		changes()
		if err := workload.cp.ResumeAPIServer(); err != nil {
			t.Fatal(err)
		}
		if err := workload.cp.KillAPIServer(); err != nil {
			t.Fatal(err)
		}
		changes()
		if err := workload.cp.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		workload.create(configMaps, shared, configMap("after", "1"))
		bus.awaitKinds(t, "workload-1", "after", "created")

		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		f.awaitCluster("workload-1", -1)
		bus.awaitKinds(t, "workload-1", "after", "created")
		workload.delete(configMaps, shared, "after")
		changes()
		writeFile(t, file, readFile(t, workload.cp.Kubeconfig()))
		bus.awaitKinds(t, "workload-1", "after", "created deleted")
		for _, m := range []*member{management, workload} {
			bus.exact(t, m, f)
		}
		f.stop()
		for n := range round {
			management.delete(configMaps, shared, fmt.Sprintf("c%d", n+1))
		}
	})
}

// TestClusterAPIRotatesACredential_Slow verifies the rotation of a credential. A forwarder copies the
// clusters of Cluster API objects. The test replaces a Secret and revokes the credentials in the old
// one.
func TestClusterAPIRotatesACredential_Slow(t *testing.T) {
	onFleets(t, "clusterapi", rotateACredential)
}

func rotateACredential(t *testing.T, bus fleetBus) {
	management := newMember(t, "management")
	management.addCRD("Cluster", "clusters")
	cp := controlplanetest.New(t, controlplane.Options{Users: map[string][]string{"first": nil, "second": nil}})
	workload := &member{user: newUser(t, cp), name: shared + ".w", cp: cp}
	workload.create(gvr("", "v1", "namespaces"), "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+shared+"}")
	roles := kubernetes.NewForConfigOrDie(cp.Config()).RbacV1().ClusterRoleBindings()
	for _, user := range []string{"first", "second"} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		}
		if _, err := roles.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	secrets, clusters := gvr("", "v1", "secrets"), gvr("cluster.x-k8s.io", "v1beta2", "clusters")
	secret := func(content string) string {
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
			"metadata":   map[string]any{"name": "w-kubeconfig", "labels": map[string]string{"cluster.x-k8s.io/cluster-name": "w"}},
			"stringData": map[string]string{"value": content},
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	f := fleetForwarder(t, bus, management.cp.Kubeconfig(), map[string]string{
		"CLUSTER_API": shared, "CLUSTER_API_MANAGEMENT_NAME": "management", "RESOURCES": "configmaps",
	}).start().ready()
	management.create(clusters, shared, "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: w}")
	f.awaitCluster(workload.name, 0)
	management.create(configMaps, shared, configMap("home", "1"))
	bus.awaitKinds(t, "management", "home", "created")

	management.create(secrets, shared, secret(readFile(t, cp.KubeconfigFor("first"))))
	f.awaitCluster(workload.name, 1)
	workload.create(configMaps, shared, configMap("before", "1"))
	bus.awaitKinds(t, workload.name, "before", "created")

	patch := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(secret(readFile(t, cp.KubeconfigFor("second")))), &patch.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := management.of(secrets, shared).Update(t.Context(), patch, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.awaitLog("the kubeconfig of a cluster has changed")
	if err := roles.Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	workload.create(configMaps, shared, configMap("later", "1"))
	bus.awaitKinds(t, workload.name, "later", "created")
	bus.exact(t, workload, f)
	management.delete(clusters, shared, "w")
	f.awaitCluster(workload.name, -1)
	if len(bus.objects(workload.name)["later"]) == 0 {
		t.Error("the objects of a cluster that has gone are not on the bus")
	}
	f.stop()
}
