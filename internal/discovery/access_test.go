package discovery

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

func TestDenied(t *testing.T) {
	pods := event.Resource{Version: "v1", Resource: "pods", Namespaced: true}
	nodes := event.Resource{Version: "v1", Resource: "nodes"}
	for name, c := range map[string]struct {
		access    controlplanetest.Reviews
		resource  event.Resource
		namespace string
		want      string // in the error, "" for none
	}{
		"everything":                {func(a authorizationv1.ResourceAttributes) (bool, error) { return a.Resource == "*", nil }, pods, "", ""},
		"this":                      {func(a authorizationv1.ResourceAttributes) (bool, error) { return a.Resource == "pods", nil }, pods, "", ""},
		"nothing":                   {func(authorizationv1.ResourceAttributes) (bool, error) { return false, nil }, pods, "", "may not list it in all namespaces"},
		"no watch":                  {func(a authorizationv1.ResourceAttributes) (bool, error) { return a.Verb == "list", nil }, pods, "", "may not watch it in all namespaces"},
		"not here":                  {func(a authorizationv1.ResourceAttributes) (bool, error) { return a.Namespace == "a", nil }, pods, "b", `may not list it in the namespace "b"`},
		"here":                      {func(a authorizationv1.ResourceAttributes) (bool, error) { return a.Namespace == "a", nil }, pods, "a", ""},
		"cluster-scoped":            {func(authorizationv1.ResourceAttributes) (bool, error) { return false, nil }, nodes, "", "may not list it in the cluster"},
		"it cannot be asked":        {func(authorizationv1.ResourceAttributes) (bool, error) { return false, errors.New("no") }, pods, "", ""},
		"an authorizer cannot tell": {func(authorizationv1.ResourceAttributes) (bool, error) { return false, controlplanetest.ErrEvaluation }, pods, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := NewAccess(c.access, nil, time.Now).Denied(t.Context(), c.resource, c.namespace)
			if (err == nil) != (c.want == "") || err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestRulesOfANamespace verifies that one rules review of a namespace covers all resources.
func TestRulesOfANamespace(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	controlplanetest.AllowReader(t, cp, namespace, "podtemplates")
	client, err := authorizationclient.NewForConfig(cp.ConfigFor("reader"))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	a := NewAccess(controlplanetest.Reviews(func(a authorizationv1.ResourceAttributes) (bool, error) {
		if a.Resource != "*" {
			t.Errorf("access review of %s, want only of *", a.Resource)
		}
		return false, nil
	}), countedRules{client.SelfSubjectRulesReviews(), &asked}, time.Now)
	templates := event.Resource{Version: "v1", Resource: "podtemplates", Namespaced: true}
	poll.Try(t, "it is allowed", func(context.Context) error {
		clear(a.rules.answers)
		return a.Denied(t.Context(), templates, namespace)
	})
	asked = 0
	for _, other := range []string{"pods", "secrets", "services"} {
		if err := a.Denied(t.Context(), event.Resource{Version: "v1", Resource: other, Namespaced: true}, namespace); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want forbidden", other, err)
		}
	}
	if asked != 0 {
		t.Errorf("%d further access reviews, want none", asked)
	}
	if err := a.Denied(t.Context(), templates, "default"); !apierrors.IsForbidden(err) {
		t.Errorf("in another namespace: got %v, want forbidden", err)
	}
}

type countedRules struct {
	authorizationclient.SelfSubjectRulesReviewInterface
	asked *int
}

func (c countedRules) Create(ctx context.Context, review *authorizationv1.SelfSubjectRulesReview, o metav1.CreateOptions) (*authorizationv1.SelfSubjectRulesReview, error) {
	*c.asked++
	return c.SelfSubjectRulesReviewInterface.Create(ctx, review, o)
}

func TestPermits(t *testing.T) {
	deployments := event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Namespaced: true}
	rule := func(verbs, groups, resources, names string) authorizationv1.ResourceRule {
		return authorizationv1.ResourceRule{
			Verbs: strings.Fields(verbs), APIGroups: strings.Fields(groups), Resources: strings.Fields(resources), ResourceNames: strings.Fields(names),
		}
	}
	for name, c := range map[string]struct {
		rules []authorizationv1.ResourceRule
		want  bool
	}{
		"none":             {nil, false},
		"this":             {[]authorizationv1.ResourceRule{rule("get list", "apps", "deployments", "")}, true},
		"everything":       {[]authorizationv1.ResourceRule{rule("*", "*", "*", "")}, true},
		"another verb":     {[]authorizationv1.ResourceRule{rule("watch", "apps", "deployments", "")}, false},
		"another group":    {[]authorizationv1.ResourceRule{rule("list", "extensions", "deployments", "")}, false},
		"another":          {[]authorizationv1.ResourceRule{rule("list", "apps", "replicasets", "")}, false},
		"only one by name": {[]authorizationv1.ResourceRule{rule("list", "apps", "deployments", "web")}, false},
		"the second":       {[]authorizationv1.ResourceRule{rule("list", "", "pods", ""), rule("list", "apps", "*", "")}, true},
	} {
		if got := permits(c.rules, "list", deployments); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
