package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// apiServer is a control plane with the settings for these tests, and its clients.
type apiServer struct {
	*controlplane.ControlPlane
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	return connect(t, cluster.ControlPlane(t))
}

func connect(t *testing.T, cp *controlplane.ControlPlane) *apiServer {
	t.Helper()
	s := &apiServer{ControlPlane: cp}
	config := s.Config()
	var err error
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))
	return s
}

// namespace creates a namespace with the given labels, for example restricted.
func (s *apiServer) namespace(t *testing.T, name string, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Labels: labels}}
	made, err := s.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Name
}

var restricted = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}

// apply applies the manifests with field validation, as kubectl does, and returns the first error.
// It removes the objects at the end of the test.
func (s *apiServer) apply(t *testing.T, namespace string, m manifests, dryRun ...string) error {
	t.Helper()
	for _, o := range m {
		mapping, err := s.mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		if err != nil {
			s.mapper.Reset()
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		var client dynamic.ResourceInterface = s.dynamic.Resource(mapping.Resource)
		if mapping.Scope.Name() == "namespace" {
			of := o.GetNamespace()
			if of == "" {
				of = namespace
			}
			client = s.dynamic.Resource(mapping.Resource).Namespace(of)
		}
		content, err := json.Marshal(o)
		if err != nil {
			return err
		}
		force := true
		if _, err := client.Patch(t.Context(), o.GetName(), "application/apply-patch+yaml", content,
			metav1.PatchOptions{FieldManager: "test", FieldValidation: "Strict", Force: &force, DryRun: dryRun}); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if len(dryRun) > 0 {
			continue
		}
		t.Cleanup(func() {
			if err := client.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Logf("delete %s %s: %v", o.GetKind(), o.GetName(), err)
			}
		})
	}
	return nil
}

// awaitNoDefinition waits until a deleted CustomResourceDefinition is gone. Its finalizer takes a
// while to run, and the definition's end also deletes any object that is applied meanwhile.
func (s *apiServer) awaitNoDefinition(t *testing.T, name string) {
	t.Helper()
	definitions := s.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	err := poll.Until(context.Background(), limit, name+" is gone", func(ctx context.Context) error { // the test's context has ended
		_, err := definitions.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			err = errors.New("the definition still exists")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// create creates an object from YAML.
func (s *apiServer) create(t *testing.T, namespace, text string) {
	t.Helper()
	m, err := decode([]byte(text))
	if err == nil {
		err = s.apply(t, namespace, m)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// kubeconfig waits until the pod's service account has the permissions in the manifests. Then it
// writes a kubeconfig with a token of that account.
func (s *apiServer) kubeconfig(t *testing.T, namespace, serviceAccount string, m manifests) string {
	t.Helper()
	s.serviceAccount(namespace, serviceAccount).await(t, namespace, m)
	token, err := s.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), serviceAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := clientcmd.LoadFromFile(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	admin.AuthInfos = map[string]*clientcmdapi.AuthInfo{"forwarder": {Token: token.Status.Token}}
	admin.Contexts[admin.CurrentContext].AuthInfo = "forwarder"
	admin.Contexts[admin.CurrentContext].Namespace = namespace // a pod reads the namespace from a file beside its token
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*admin, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// start launches the forwarder and waits until it is ready.
func start(t *testing.T, env map[string]string, kubeconfig string) *harness.Forwarder {
	t.Helper()
	f := launch(t, env, kubeconfig)
	poll.Try(t, "the forwarder is ready", func(ctx context.Context) error {
		err := f.Ready(ctx)
		var ended *harness.EndedError
		if errors.As(err, &ended) {
			t.Fatal(err)
		}
		return err
	})
	return f
}

// launch starts the forwarder with exactly this environment, which must include the forwarder's
// listen address.
func launch(t *testing.T, env map[string]string, kubeconfig string) *harness.Forwarder {
	t.Helper()
	buildForwarder(t)
	// Remove the variables that the harness sets by default.
	set := map[string]string{"NATS_URL": "", "LISTEN_ADDR": "", "CLUSTER_NAME": "", "LOG_LEVEL": "", "RETRY_MAX_DELAY": "", "NATS_ACK_TIMEOUT": "", "DATA_DIR": ""}
	for name, text := range env {
		set[strings.TrimPrefix(name, "KUBERELAY_")] = text
	}
	f := harness.New(harness.Options{Binary: binary, Dir: t.TempDir(), Address: env["KUBERELAY_LISTEN_ADDR"], Kubeconfig: kubeconfig, Set: set})
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Kill()
		if t.Failed() {
			t.Logf("the forwarder's log ends with:\n%s", f.LogTail(40))
		}
	})
	return f
}

func stop(t *testing.T, f *harness.Forwarder) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := f.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := harness.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// request is one line of the audit log.
type request struct {
	User           struct{ Username string }
	UserAgent      string
	Verb           string
	RequestURI     string
	ResponseStatus struct{ Code int }
}

// requests returns the number of a user's requests, and the requests that were refused. A request
// with invalid credentials has no user, so it counts for every user.
func requests(t *testing.T, user string) (all int, refused []string) {
	t.Helper()
	text := read(t, auditLog)
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the last line may be an incomplete line of another request
	for line := range bytes.Lines(text) {
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("the audit log has %s: %v", line, err)
		}
		unknown := r.ResponseStatus.Code == 401 && strings.HasPrefix(r.UserAgent, "kuberelay-")
		if r.User.Username != user && !unknown {
			continue
		}
		all++
		if r.ResponseStatus.Code == 401 || r.ResponseStatus.Code == 403 {
			refused = append(refused, r.Verb+" "+r.RequestURI)
		}
	}
	return all, refused
}

const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.chart.example.com}
spec:
  group: chart.example.com
  names: {plural: widgets, kind: Widget}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// TestInstalled_Slow applies the chart to a real API server and runs the forwarder with the chart's
// environment and permissions. It verifies that the forwarder publishes what was configured,
// including later changes, and nothing else, and that it sends no forbidden request.
func TestInstalled_Slow(t *testing.T) {
	s := newAPIServer(t)
	watched := s.namespace(t, "watched", map[string]string{"team": "a"})
	other := s.namespace(t, "other", nil)
	nats := natstest.Start(t)
	resources := []string{"configmaps", "leases.coordination.k8s.io", "priorityclasses.scheduling.k8s.io", "widgets.chart.example.com"}

	for name, c := range map[string]struct {
		config, rbac values
		refused      int // minimum number of forbidden requests, 0 for none
	}{
		"in namespaces":                {config: values{"namespaces": []string{watched}}},
		"by the labels of namespaces":  {config: values{"namespaceSelector": "team=a"}},
		"in all namespaces but others": {config: values{"excludeNamespaces": []string{other, "kube-system", "kube-public", "kube-node-lease", "default"}}},
		"in namespaces, by labels":     {config: values{"namespaces": []string{watched, other}, "namespaceSelector": "team=a"}},
		// This case shows that the audit log contains refused requests, and that the forwarder
		// sends few of them.
		"with the fewest permissions": {
			config: values{"namespaces": []string{watched}}, rbac: values{"definitions": false, "clusterIdentity": false, "namespaces": false}, refused: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			release := s.namespace(t, "kuberelay", restricted)
			stream := "CHART_" + strings.ToUpper(strings.ReplaceAll(release, "-", "_"))
			config := values{
				"resources": resources, "clusterName": release, "natsUrl": []string{nats.URL}, "natsStream": stream,
				"natsSubjectPrefix": release, "listenAddr": freeAddress(t),
			}
			maps.Copy(config, c.config)
			v := values{"config": config}
			if c.rbac != nil {
				v["rbac"] = c.rbac
			}
			m := render(t, release, v)
			if err := s.apply(t, release, m); err != nil {
				t.Fatal(err)
			}
			account := m.podTemplate(t).Spec.ServiceAccountName
			f := start(t, m.environment(t), s.kubeconfig(t, release, account, m))

			for _, namespace := range []string{watched, other} {
				s.create(t, namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: seen}}`)
				s.create(t, namespace, `{apiVersion: v1, kind: Secret, metadata: {name: unseen}}`)
				s.create(t, namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: unseen}}`)
				s.create(t, namespace, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: seen}}`)
			}
			s.create(t, "", `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: seen}, value: 1}`)
			t.Cleanup(func() { s.awaitNoDefinition(t, "widgets.chart.example.com") }) // the next case applies it again
			s.create(t, "", widgetDefinition)
			poll.Try(t, "the API server serves widgets", func(context.Context) error {
				s.mapper.Reset()
				widgets, err := decode([]byte(`{apiVersion: chart.example.com/v1, kind: Widget, metadata: {name: seen}}`))
				if err != nil {
					return err
				}
				return errors.Join(s.apply(t, watched, widgets), s.apply(t, other, widgets))
			})
			want := []string{
				"configmaps/" + watched + "/seen", "leases/" + watched + "/seen", "priorityclasses//seen", "widgets/" + watched + "/seen",
			}
			recorder, err := harness.RecordNATS(nats.URL, stream)
			if err != nil {
				t.Fatal(err)
			}
			defer recorder.Close()
			seen := func(ctx context.Context) ([]string, error) {
				if err := recorder.CatchUp(ctx, limit); err != nil {
					return nil, err
				}
				return objects(recorder)
			}
			poll.Try(t, "everything configured is on the bus", func(ctx context.Context) error {
				got, err := seen(ctx)
				for _, w := range want {
					if !slices.Contains(got, w) {
						err = errors.Join(err, fmt.Errorf("there is no %s among %v", w, got))
					}
				}
				return err
			})
			poll.Try(t, "the forwarder has nothing left to do", f.Idle)
			got, err := seen(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the bus (-want +got):\n%s", diff)
			}
			checkAlerts(t, f, v)
			checkAllowed(t, s.serviceAccount(release, account), release, watched, c.config["namespaces"] != nil)
			stop(t, f)

			all, refused := requests(t, "system:serviceaccount:"+release+":"+account)
			t.Logf("%d requests, %d of them refused", all, len(refused))
			if all == 0 || len(refused) < c.refused || c.refused == 0 && len(refused) > 0 {
				t.Errorf("of %d requests these were refused, want %d: %v", all, c.refused, refused)
			}
			checkNotes(t, f, watched)
		})
	}
}

// checkAllowed asks the API server which requests the service account may send. If listed is true,
// the values list the namespaces, and the account may not read other namespaces.
func checkAllowed(t *testing.T, user account, release, watched string, listed bool) {
	t.Helper()
	if found := user.harmful(t, []string{release, watched}); len(found) > 0 {
		t.Errorf("the service account may %v", found)
	}
	for namespace, want := range map[string]bool{watched: true, release: !listed, "": !listed} {
		access := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "configmaps"}
		if got, err := user.may(t.Context(), access); err != nil || got != want {
			t.Errorf("the service account may %s: %v, %v, want %v", describe(access), got, err, want)
		}
	}
}

// checkNotes runs the forwarder commands that NOTES.txt shows and verifies their output.
func checkNotes(t *testing.T, f *harness.Forwarder, namespace string) {
	t.Helper()
	code, out, stderr, err := f.Run(t.Context(), "tail", "--last", "--count=1", "--resource=configmaps", "--namespace="+namespace)
	if err != nil || code != 0 || !strings.Contains(out, "/seen") {
		t.Errorf("forwarder tail: %v, exit code %d, %q, %s", err, code, out, stderr)
	}
	code, out, stderr, err = f.Run(t.Context(), "resources")
	if err != nil || code != 0 || !strings.Contains(out, "configmaps") {
		t.Errorf("forwarder resources: %v, exit code %d, %q, %s", err, code, out, stderr)
	}
}

var ownMetric = regexp.MustCompile(`kuberelay_[a-z_]+`)

// checkAlerts verifies that the alerts use only metrics that the forwarder serves or that
// docs/metrics.md describes. Some metrics have no value before the first fault. TestAlerts_Slow in
// test/e2e causes the faults.
func checkAlerts(t *testing.T, f *harness.Forwarder, v values) {
	t.Helper()
	v = maps.Clone(v)
	v["prometheusRule"] = values{"enabled": true}
	text := fmt.Sprint(render(t, "kuberelay", v).of("PrometheusRule")[0].Object)
	names := ownMetric.FindAllString(text, -1)
	if len(names) == 0 {
		t.Errorf("no metric in %s", text)
	}
	documented, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.Contains(string(documented), "\n| `"+name+"` |") {
			continue
		}
		if _, err := f.Metric(t.Context(), name); err != nil {
			t.Errorf("an alert uses %s: %v", name, err)
		}
	}
}

// objects returns the objects that have events. It leaves out the objects that Kubernetes creates
// itself and the forwarders' Leases.
func objects(recorder harness.Recorder) ([]string, error) {
	all, missed, err := recorder.All()
	if err != nil || missed {
		return nil, errors.Join(err, fmt.Errorf("messages missed: %v", missed))
	}
	names := map[string]bool{}
	for _, r := range all {
		if !strings.HasPrefix(r.Attributes["type"], "io.kuberelay.object.") {
			continue // a marker
		}
		parts := strings.Split(r.Attributes["partitionkey"], "/") // cluster, group, resource, namespace, name
		if len(parts) != 5 {
			return nil, fmt.Errorf("the partition key %q is not that of an object", r.Attributes["partitionkey"])
		}
		name := parts[2] + "/" + strings.TrimPrefix(parts[3], "_") + "/" + parts[4]
		if !strings.HasPrefix(name, "priorityclasses//system-") && !strings.HasSuffix(name, "/kr-kuberelay") {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// TestPodSecurity verifies that with restricted Pod Security, the API server accepts the chart's
// objects with everything that values can add.
func TestPodSecurity(t *testing.T) {
	s := newAPIServer(t)
	namespace := s.namespace(t, "restricted", restricted)
	const runtimeClass = "sandboxed"
	s.create(t, "", `{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: `+runtimeClass+`}, handler: runsc}`)
	ofContainer := values{"allowPrivilegeEscalation": false, "capabilities": values{"drop": []string{"ALL"}}}
	for name, v := range map[string]values{
		"the least":     {"config": values{"resources": []string{"pods"}}},
		"ephemeral":     {"config": values{"resources": []string{"pods"}}, "persistence": values{"ephemeral": true}},
		"a bus outside": {"config": values{"resources": []string{"pods"}, "natsUrl": []string{"nats://nats:4222"}}},
		"with files, a claim and more": {
			"config": values{
				"resources": []string{"pods"}, "natsListen": ":4222", "redactionKeyFile": values{"secret": "s"}, "kafkaTls": true, "kafkaTlsCaFile": values{"configMap": "c"},
				"natsTokenFile": values{"secret": "s"}, "natsListenTlsCertFile": values{"secret": "s"}, "natsListenTlsKeyFile": values{"secret": "s"}, "metricsAuth": true,
			},
			"persistence":       values{"size": "20Gi", "storageClass": "fast"},
			"extraVolumes":      []any{values{"name": "more", "emptyDir": values{}}},
			"extraVolumeMounts": []any{values{"name": "more", "mountPath": "/more"}},
			"tolerations":       []any{values{"operator": "Exists"}}, "extraEnv": []any{values{"name": "GOGC", "value": "50"}},
			"topologySpreadConstraints": []any{values{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}},
			"affinity":                  values{"nodeAffinity": values{"preferredDuringSchedulingIgnoredDuringExecution": []any{values{"weight": 1, "preference": values{"matchExpressions": []any{values{"key": "k", "operator": "Exists"}}}}}}},
		},
		"with more in the pod": {
			"config":          values{"resources": []string{"pods"}, "natsUrl": []string{"nats://nats:4222"}},
			"envFrom":         []any{values{"configMapRef": values{"name": "proxy", "optional": true}}},
			"initContainers":  []any{values{"name": "wait", "image": "busybox", "securityContext": ofContainer}},
			"extraContainers": []any{values{"name": "beside", "image": "busybox", "securityContext": ofContainer}},
			"startupProbe":    values{"httpGet": values{"path": "/healthz", "port": "http"}, "failureThreshold": 30},
			"hostAliases":     []any{values{"ip": "192.0.2.1", "hostnames": []string{"nats.example.com"}}},
			"dnsConfig":       values{"options": []any{values{"name": "ndots", "value": "2"}}},
			"strategy":        values{"type": "RollingUpdate", "rollingUpdate": values{"maxUnavailable": "50%", "maxSurge": 0}},

			"runtimeClassName": runtimeClass, "revisionHistoryLimit": 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := render(t, namespace, v)
			if err := s.apply(t, namespace, m, metav1.DryRunAll); err != nil {
				t.Error(err)
			}
			template := m.podTemplate(t)
			pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
			pod.Name = "forwarder"
			dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
			made, err := s.client.CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun)
			if err != nil {
				t.Fatal(err)
			}
			if user := made.Spec.SecurityContext.RunAsUser; user == nil || *user != 65532 {
				t.Errorf("it runs as user %v, want 65532", user)
			}
			if ro := made.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
				t.Error("its root file system can be written to")
			}
			// Verify that the policy is active.
			pod.Spec.Containers[0].SecurityContext.Capabilities = nil
			if _, err := s.client.CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun); !apierrors.IsForbidden(err) {
				t.Errorf("a pod that keeps its capabilities: got %v, want it forbidden", err)
			}
		})
	}
}
