package controlplanetest

import (
	"context"
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
)

// AllowReader grants the user "reader" get, list and watch on a core resource in one namespace.
func AllowReader(t *testing.T, cp *controlplane.ControlPlane, namespace, resource string) {
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

// Reviews responds to access reviews in place of the API server.
type Reviews func(authorizationv1.ResourceAttributes) (bool, error)

// ErrEvaluation makes a review report an evaluation error, as when an authorizer can't decide.
var ErrEvaluation = errors.New("the webhook does not respond")

// Create returns the review with its result.
func (f Reviews) Create(_ context.Context, review *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	allowed, err := f(*review.Spec.ResourceAttributes)
	review = review.DeepCopy()
	review.Status.Allowed = allowed
	if errors.Is(err, ErrEvaluation) {
		review.Status.EvaluationError, err = err.Error(), nil
	}
	return review, err
}
