package informers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

func reviews(t *testing.T, config *rest.Config) discovery.AccessReviews {
	t.Helper()
	client, err := authorizationclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.SelfSubjectAccessReviews()
}

// access asks the API server as the user of a configuration.
func access(t *testing.T, config *rest.Config) *discovery.Access {
	t.Helper()
	return discovery.NewAccess(reviews(t, config), nil, time.Now)
}

// allowIn lets the user "reader" list and watch a core resource in one namespace.
func allowIn(t *testing.T, cp *controlplane.ControlPlane, namespace, resource string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	name := metav1.ObjectMeta{Name: "readers-of-" + resource}
	role := &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}
	if _, err := client.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// answers stands in for the API server.
type answers func(authorizationv1.ResourceAttributes) (bool, error)

func (a answers) Create(_ context.Context, review *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	allowed, err := a(*review.Spec.ResourceAttributes)
	review = review.DeepCopy()
	review.Status.Allowed = allowed
	if errors.Is(err, errEvaluation) {
		review.Status.EvaluationError, err = err.Error(), nil
	}
	return review, err
}

// errEvaluation stands for an authorizer that could not tell.
var errEvaluation = errors.New("the webhook does not answer")

// TestAskedFirst: what we may not watch is found out by asking, without a request that is
// refused, and starts by itself when it is allowed.
func TestAskedFirst(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	limits := configMaps
	limits.Resource = "limitranges"
	objects := newObjects(t, cp, limits, "LimitRange", namespace)
	one := objects.create("one", nil)
	r := start(t, cp.ConfigFor("reader"), Config{
		Selection: discovery.Selection{Include: []string{"limitranges"}}, Access: access(t, cp.ConfigFor("reader")),
	})
	poll(t, "it is named", func() error {
		for _, st := range r.Status() {
			if apierrors.IsForbidden(st.Failing) && strings.Contains(st.Failing.Error(), "may not list it in all namespaces") {
				return nil
			}
		}
		return fmt.Errorf("%+v", r.Status())
	})
	r.acknowledge(objects.key("gone"), live("G", "1"))
	if got, err := r.reconcile(t, limits.GroupResource()); got != (reconcile.Comparison{Waiting: 1}) || err != nil {
		t.Errorf("of what is forbidden: got %+v, error %v; want no conclusion", got, err)
	}
	r.mu.Lock()
	if len(r.completed) > 0 {
		t.Error("the first sync of what may not be read is complete")
	}
	r.mu.Unlock()
	allow(t, cp, "limitranges")
	poll(t, "it is allowed", func() error {
		return r.config.Access.Denied(t.Context(), event.Resource{Version: "v1", Resource: "limitranges", Namespaced: true}, "")
	})
	r.again(t)
	r.awaitView(t, "what was forbidden", objects.key("one"), one)
}
