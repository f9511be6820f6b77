package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/verify"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

const clusterName = "torture"

// limit bounds every wait. It is generous, because only a failing seed reaches it.
const limit = 90 * time.Second

// world is the environment of a seed or scenario: the shared control plane, its own bus, two or more
// forwarders, and a recorder that reads the bus.
type world struct {
	t        testing.TB
	dir      string
	cp       *controlplane.ControlPlane
	kube     kubernetes.Interface
	user     *user
	bus      bus
	nodes    []*node
	settings settings

	paused             *node // the leader, while it is frozen
	busDown, busFrozen bool
	apiDown, apiFrozen bool
	unserved           bool                    // the aggregated API server isn't registered
	second             *controlplane.APIServer // behind the same address; nil if there is none
	etcdLink           *faultproxy.Proxy       // for the second API server
	etcdDown           bool
	forbidden          bool
	snapshot           string // the directory of etcd's snapshot, "" if there is none

	more []map[string]string // variables of the forwarders in addition to the settings
	runs []run               // the configurations of the forwarders

	foreign   foreignMessages        // of the foreign writer
	published int                    // recorded messages of the bus
	wentBack  []wentBack             // messages that returned to the stream
	resumed   map[life]bool          // lives that continue after the bus lost the end of the life before
	lost      map[harness.Place]bool // places of messages that a fault removed from the bus
	restored  bool                   // the cluster's history went back
	compacted bool                   // a watch may have missed states
	bug       string                 // the planted bug of the forwarders, "" for none
	binary    string                 // the binary of the forwarders
}

// worlds counts the worlds, so that each of them has its own names in the shared cluster.
var worlds atomic.Int64

// newWorld creates a world without starting a forwarder. bug names a planted bug, or is "". more
// adds variables, without their prefix, for the first and second forwarder.
func newWorld(t testing.TB, s settings, bug string, more ...map[string]string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), cp: cluster.ControlPlane(t), settings: s, bug: bug, binary: forwarder, more: more,
		runs: []run{{configuration: s.configuration}}, lost: map[harness.Place]bool{}, resumed: map[life]bool{}, foreign: foreignMessages{at: map[harness.Place]bool{}, entries: map[string]bool{}}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	id := worlds.Add(1)
	var err error
	if bug != "" {
		w.binary, err = plant(t.Context(), bug, t.TempDir())
		must(err)
	}
	w.kube, err = kubernetes.NewForConfig(w.cp.Config())
	must(err)
	w.user, err = newUser(w.cp.Config(), fmt.Sprintf("world%d-", id))
	must(err)
	must(w.allow(t.Context()))
	t.Cleanup(w.clean)
	for _, name := range []string{"a", "b"} {
		must(w.user.createNamespace(t.Context(), name, true))
	}
	if s.byTeam {
		w.user.crowd = s.crowd
		must(w.user.assemble(t.Context()))
	}
	for _, name := range []string{widgets, planets} {
		must(w.serve(t.Context(), name))
	}
	must(w.useServers(t.Context()))
	w.bus = startBus(t, w)
	for n := range w.forwarders() {
		nd, err := w.newNode(n)
		must(err)
		w.nodes = append(w.nodes, nd)
		t.Cleanup(nd.kill)
	}
	return w
}

// forwarders returns the maximum number of forwarders.
func (w *world) forwarders() int { return max(2, w.settings.replicas) }

// homes returns the namespaces that the settings select.
func (w *world) homes() []string {
	if !w.settings.namespaces {
		return nil
	}
	return w.user.homes()
}

// teamSelector returns the selector of namespaces.
func (w *world) teamSelector() string {
	if !w.settings.byTeam {
		return ""
	}
	return teamLabel + "=" + w.user.team()
}

// environment returns the complete configuration of a forwarder.
func (w *world) environment(n int) map[string]string {
	all := map[string]string{
		"RETRY_MAX_DELAY": retryLongest.String(), "DRAIN_TIMEOUT": drainTimeout.String(),
		"KUBE_QPS": "500", "KUBE_BURST": "1000",
	}
	maps.Copy(all, w.bus.variables(n))
	maps.Copy(all, w.variables())
	maps.Copy(all, w.electing())
	if n < len(w.more) {
		maps.Copy(all, w.more[n])
	}
	return all
}

func (w *world) variables() map[string]string {
	s := w.settings
	mode, deselect := "binary", "keep"
	if s.structured {
		mode = "structured"
	}
	if s.tells {
		deselect = "publish"
	}
	return map[string]string{
		"RESOURCES": strings.Join(w.selectors(), ","), "NAMESPACES": strings.Join(w.homes(), ","),
		"LABEL_SELECTOR": s.labelSelector(), "FIELD_SELECTOR": s.fieldSelector(),
		"NAMESPACE_SELECTOR": w.teamSelector(), "ON_DESELECT": deselect,
		"SINK": string(s.sink), "CONTENT_MODE": mode, "WORKERS": fmt.Sprint(s.workers), "RESYNC_PERIOD": s.resync.String(),
		"CHECKPOINT_REFRESH": s.refresh.String(), "DELETE_RETENTION": s.retention.String(),
		"RESOLVED_INTERVAL": s.points.String(),
		"DROP_FIELDS":       w.dropped(), "FILTER": w.filter(), "DATA": w.form(),
	}
}

// The roles of the forwarder's user. They stay in the shared cluster. A fault can revoke coreRole.
var (
	coreRole = rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "torture-core"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{configMaps, namespaces}, Verbs: []string{"get", "list", "watch"}}},
	}
	restRole = rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "torture-rest"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: append([]string{"customresourcedefinitions", "apiservices", flunders, revisions}, customResources...), Verbs: []string{"get", "list", "watch"}}},
	}
)

var leaseRole = rbacv1.ClusterRole{
	ObjectMeta: metav1.ObjectMeta{Name: "torture-lease"},
	Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}}},
}

func (w *world) allow(ctx context.Context) error {
	return errors.Join(w.bind(ctx, &coreRole), w.bind(ctx, &restRole), w.bind(ctx, &leaseRole))
}

// bind grants the forwarder a role.
func (w *world) bind(ctx context.Context, role *rbacv1.ClusterRole) error {
	if _, err := w.kube.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: reader}},
	}
	if _, err := w.kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// clean removes the world's objects from the shared cluster.
func (w *world) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := w.endFaults(ctx); err != nil {
		w.t.Errorf("end the faults: %v", err)
	}
	if err := w.leaveSecond(ctx); err != nil {
		w.t.Error(err)
	}
	if err := w.adopt(ctx); err != nil {
		w.t.Error(err)
	}
	for _, name := range []string{"a", "b"} {
		_ = w.user.do(ctx, op{do: removeAll, target: target{name: name}})
	}
	if err := w.user.leave(ctx); err != nil {
		w.t.Logf("delete what is left: %v", err)
	}
	if err := w.user.forgetChanged(ctx); err != nil {
		w.t.Error(err)
	}
}

// serve waits until objects of a custom resource can be created. Another world may have removed
// its definition.
func (w *world) serve(ctx context.Context, name string) error {
	return poll.Until(ctx, limit, name+" are served", func(ctx context.Context) error {
		if err := w.user.define(ctx, name); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return w.user.served(ctx, name)
	})
}

// endFaults ends every fault. It can be called at any time.
func (w *world) endFaults(ctx context.Context) error {
	if len(w.nodes) == 0 {
		return nil // the world isn't complete, and has no faults
	}
	actions := []act{
		{do: busStart}, {do: busThaw}, {do: etcdStart}, {do: apiStart}, {do: apiThaw}, {do: grant},
		{do: aggregatedRun}, {do: lagEnds}, {do: toFirst},
	}
	for n := range w.nodes {
		actions = append(actions, act{do: thaw, node: n}, act{do: busPass, node: n}, act{do: apiPass, node: n})
	}
	var all error
	for _, a := range actions {
		all = errors.Join(all, w.execute(ctx, a))
	}
	all = errors.Join(all, w.bus.mend(ctx))
	return errors.Join(all, poll.Until(ctx, limit, "the API server is ready", func(ctx context.Context) error {
		return w.kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}))
}

// settle is the maximum time that the bus takes to converge after the end of the faults.
const settle = 60 * time.Second

// verify compares the bus with the cluster by running the project's oracle.
func (w *world) verify(ctx context.Context, cluster string, settle time.Duration) (problems []string, err error) {
	var teams labels.Selector // nil selects all
	if s := w.teamSelector(); s != "" {
		if teams, err = labels.Parse(s); err != nil {
			return nil, err
		}
	}
	o := verify.Options{
		Kube: w.cp.Config(),

		Resources: w.selectors(), UnlessNamed: config.UnlessNamed(), Namespaces: w.homes(),
		LabelSelector: w.settings.labelSelector(), FieldSelector: w.settings.fieldSelector(),
		NamespaceSelector: teams, TellDeselected: w.settings.tells, Shape: w.shape(),
		DeleteRetention: w.settings.retention, Settle: settle,
	}
	w.bus.verified(&o, cluster)
	report, err := verify.Run(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	all, _, err := w.bus.All()
	if err != nil {
		return nil, err
	}
	expected := w.contradictions(all)
	for _, p := range report.Problems {
		if w.isExpected(p, expected) || w.isOfTwoWriters(p) || w.isOfOneReplica(ctx, p, all) {
			continue
		}
		problems = append(problems, fmt.Sprintf("verify: %s: %s %s/%s: cluster %q, bus %q at %d: %s",
			p.Kind, p.Resource, p.Namespace, p.Name, p.Cluster, p.Bus, p.Position, p.Detail))
	}
	return problems, nil
}

// verifySettled runs verify until it succeeds without a problem, or settle has passed. With a
// foreign writer, some expected differences stay, so one verify would always wait for the whole of
// settle. verifySettled then limits each verify to a part of settle, and repeats it.
func (w *world) verifySettled(ctx context.Context, cluster string, settle time.Duration) (problems []string, err error) {
	began, once := time.Now(), settle
	if w.settings.foreign {
		once = settle / 12
	}
	err = poll.Until(ctx, limit, "the bus can be compared with cluster "+cluster, func(ctx context.Context) (err error) {
		problems, err = w.verify(ctx, cluster, once) // a deleted topic may not have been recreated yet
		if err == nil && len(problems) > 0 && once < settle && time.Since(began) < settle {
			err = fmt.Errorf("%d problems", len(problems))
		}
		return err
	})
	return problems, err
}

// check checks that the bus is a copy of the cluster, that every message that the stream ever had
// was in order and true, and that no process has failed. It returns a [wrongError] with the problems
// that it finds. Any other error means that it couldn't check.
func (w *world) check(ctx context.Context, settle time.Duration) error {
	problems, err := w.compareReplica(ctx, settle)
	if err != nil {
		return err
	}
	for _, cluster := range w.clusters() {
		found, err := w.verifySettled(ctx, cluster, settle)
		if err != nil {
			return err
		}
		problems = append(problems, found...)
	}
	if err := w.bus.CatchUp(ctx, limit); err != nil {
		return err
	}
	all, missed, err := w.bus.All()
	if err != nil {
		return err
	}
	present, err := w.user.present(ctx, w.settings.other)
	if err != nil {
		return err
	}
	w.published = len(all)
	for _, cluster := range w.clusters() {
		problems = append(problems, w.checkStream(messagesOf(cluster, all), missed, uids(present))...)
	}
	if w.foreign.peak > memoryBound {
		problems = append(problems, fmt.Sprintf("memory: a forwarder had %d MiB", w.foreign.peak>>20))
	}
	if w.settings.cluster > 0 {
		problems = append(problems, w.falseLosses(ctx, all)...)
	}
	for n, nd := range w.nodes {
		if _, failed := nd.state(); failed != nil {
			problems = append(problems, fmt.Sprintf("forwarder %d: %v", n, failed))
		}
	}
	if len(problems) > 0 {
		return &wrongError{problems}
	}
	return nil
}

// wrongError contains the problems that the oracle found.
type wrongError struct{ problems []string }

func (e *wrongError) Error() string { return strings.Join(e.problems, "\n") }
