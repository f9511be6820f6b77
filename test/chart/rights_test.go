package chart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

const goldenRights = "testdata/rights.golden"

// TestExampleRights_Slow compares the permissions that each example in the documentation grants with
// testdata/rights.golden. A real API server with exactly these roles confirms the list. It also
// confirms that no role allows a subresource, a Secret, or a write other than to the Lease.
func TestExampleRights_Slow(t *testing.T) {
	s := newAPIServer(t)
	var golden strings.Builder
	for _, e := range examples(t) {
		t.Run(e.name, func(t *testing.T) {
			namespace := s.namespace(t, "rights", nil)
			m := e.manifests(t, namespace)
			rights := granted(t, m, rbacv1.Subject{Kind: "ServiceAccount", Name: e.account, Namespace: namespace})
			writeRights(&golden, e.name, rights, namespace)
			for of, lines := range rights {
				for _, line := range lines {
					if !harmless(line) {
						t.Errorf("in %q it may %s", of, line)
					}
				}
			}
			s.applyRights(t, namespace, m)
			namespaces := slices.DeleteFunc(slices.Sorted(maps.Keys(rights)), func(of string) bool { return of == "" || of == namespace })
			namespaces = append(namespaces, namespace, metav1.NamespaceDefault)
			user := s.serviceAccount(namespace, e.account)
			poll.Try(t, "the API server confirms the rights", func(ctx context.Context) error {
				for _, of := range namespaces {
					want := slices.Concat(rights[""], rights[of])
					slices.Sort(want)
					got, err := user.rules(ctx, of)
					if err != nil {
						return err
					}
					if diff := cmp.Diff(slices.Compact(want), got, cmpopts.EquateEmpty()); diff != "" {
						return fmt.Errorf("in %s (-want +got):\n%s", of, diff)
					}
				}
				return nil
			})
			if found := user.harmful(t, namespaces); len(found) > 0 {
				t.Errorf("the API server allows %v", found)
			}
		})
	}
	if *update {
		if err := os.WriteFile(goldenRights, []byte(golden.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenRights)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), golden.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s\nIf this is intended, run: go test ./test/chart -run TestExampleRights_Slow -update", goldenRights, diff)
	}
}

// TestHarmfulRightsAreFound verifies that the checks of TestExampleRights_Slow detect the harmful
// permissions in a rule for all resources.
func TestHarmfulRightsAreFound(t *testing.T) {
	s := newAPIServer(t)
	namespace := s.namespace(t, "rights", nil)
	m := bound(t, namespace, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "patch"}})
	if harmless("get,list,watch *.*") {
		t.Error("a rule for all resources is harmless")
	}
	s.applyRights(t, namespace, m)
	user := s.serviceAccount(namespace, "kr-kuberelay")
	poll.Try(t, "harmful rights are found", func(context.Context) error {
		found := user.harmful(t, []string{namespace})
		for _, want := range []string{"get nodes/proxy", "get pods/exec", "get pods/log", "list secrets", "patch configmaps", "patch deployments.apps"} {
			if want += " in " + namespace; !slices.Contains(found, want) {
				return fmt.Errorf("no %s in %v", want, found)
			}
		}
		return nil
	})
}

var (
	reads      = regexp.MustCompile(`^(get|list|watch)(,(list|watch))* [a-z0-9-]+(\.[a-z0-9.-]+)?$`)
	namespaces = regexp.MustCompile(`^get(,list)? namespaces/[a-z0-9,-]+$`)
	writeLease = "get,update leases.coordination.k8s.io/kr-kuberelay"
	review     = regexp.MustCompile(`^create (tokenreviews\.authentication|subjectaccessreviews\.authorization)\.k8s\.io$`)
)

// harmless reports whether a line of [granted] allows no more than to read resources other than Secrets, to
// read namespaces by name, to renew the Lease, or to check the access of a metrics reader.
func harmless(line string) bool {
	_, resource, _ := strings.Cut(line, " ")
	return line == writeLease || namespaces.MatchString(line) || review.MatchString(line) || reads.MatchString(line) && resource != "secrets"
}

func writeRights(b *strings.Builder, name string, rights map[string][]string, release string) {
	fmt.Fprintf(b, "# %s\n", name)
	for _, namespace := range slices.Sorted(maps.Keys(rights)) {
		where := "in the cluster"
		switch namespace {
		case "":
		case release:
			where = "in the namespace of the release"
		default:
			where = "in the namespace " + namespace
		}
		fmt.Fprintf(b, "%s:\n  %s\n", where, strings.Join(rights[namespace], "\n  "))
	}
	b.WriteString("\n")
}

// bound returns a ClusterRole with the rules, its binding, and the service account.
func bound(t *testing.T, namespace string, rules ...rbacv1.PolicyRule) manifests {
	t.Helper()
	content, err := json.Marshal(rules)
	if err != nil {
		t.Fatal(err)
	}
	return decodeAll(t, fmt.Appendf(nil, `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: kr-kuberelay, namespace: %[1]s}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules: %[2]s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: kr-kuberelay, namespace: %[1]s}]
`, namespace, content))
}

// applyRights applies the roles, bindings and service accounts of the manifests. It creates the
// namespaces that they need.
func (s *apiServer) applyRights(t *testing.T, namespace string, m manifests) {
	t.Helper()
	rights := slices.DeleteFunc(slices.Clone(m), func(o *unstructured.Unstructured) bool {
		return o.GetKind() != "ServiceAccount" && o.GroupVersionKind().Group != rbacv1.GroupName
	})
	for _, o := range rights {
		if o.GetNamespace() == "" {
			continue
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}}
		if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if err := s.apply(t, namespace, rights); err != nil {
		t.Fatal(err)
	}
}

// TestWildcardRights_Slow verifies that a forwarder that watches everything works with the permissions
// that the chart renders for it, and sends no forbidden request.
func TestWildcardRights_Slow(t *testing.T) {
	s := newAPIServer(t)
	nats := natstest.Start(t)
	release := s.namespace(t, "kuberelay", restricted)
	s.create(t, "", strings.ReplaceAll(widgetDefinition, "chart.example.com", "wide.example.com"))
	m := render(t, release, values{
		"config": values{
			"resources": []string{"*"}, "natsUrl": []string{nats.URL}, "natsStream": "WILDCARD", "listenAddr": freeAddress(t),
		},
		"rbac": values{"groupsWithSubresources": []string{"wide.example.com"}},
	})
	if err := s.apply(t, release, m); err != nil {
		t.Fatal(err)
	}
	account := m.podTemplate(t).Spec.ServiceAccountName
	f := start(t, m.environment(t), s.kubeconfig(t, release, account, m))
	s.create(t, release, `{apiVersion: v1, kind: ConfigMap, metadata: {name: seen}}`)
	poll.Try(t, "the bus is a copy of the cluster", func(ctx context.Context) error {
		code, out, stderr, err := f.Run(ctx, "verify")
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d: %s%s", code, out, stderr)
		}
		return errors.Join(err, f.Idle(ctx))
	})
	poll.Try(t, "everything is watched", func(ctx context.Context) error { return checkWatched(ctx, t, f) })
	stop(t, f)
	if all, refused := requests(t, "system:serviceaccount:"+release+":"+account); all == 0 || len(refused) > 0 {
		t.Errorf("of %d requests these were refused: %v", all, refused)
	}
}

// checkWatched returns an error unless the forwarder watches widgets and every built-in resource
// that a wildcard selects.
func checkWatched(ctx context.Context, t *testing.T, f *harness.Forwarder) error {
	t.Helper()
	_, out, stderr, err := f.Run(ctx, "resources", "--output=json")
	if err != nil {
		return fmt.Errorf("forwarder resources: %w, %s", err, stderr)
	}
	watched := map[string]bool{}
	for _, r := range parse[struct {
		Resources []struct{ Resource, Watched string }
	}](t, []byte(out)).Resources {
		watched[r.Resource] = r.Watched == "yes"
	}
	for _, r := range append(knownResources(t).Resources, known{Name: "widgets", Group: "wide.example.com"}) {
		name := strings.TrimSuffix(r.Name+"."+r.Group, ".")
		if is, served := watched[name]; served && is == r.OnlyNamed || !served && r.Name == "widgets" {
			return fmt.Errorf("%s: watched %v, want %v", name, is, !r.OnlyNamed)
		}
	}
	return nil
}
