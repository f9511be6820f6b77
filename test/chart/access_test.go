package chart

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// account is a service account whose permissions the API server decides.
type account struct {
	s      *apiServer
	user   string
	groups []string
}

func (s *apiServer) serviceAccount(namespace, name string) account {
	return account{s: s, user: "system:serviceaccount:" + namespace + ":" + name, groups: []string{
		"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated",
	}}
}

// rules asks the API server which requests for resources in the namespace the account may send,
// beyond those that every account may send. The lines have the format of [granted].
func (a account) rules(ctx context.Context, namespace string) ([]string, error) {
	all := func(user string) (lines []string, err error) {
		config := rest.CopyConfig(a.s.Config())
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: a.groups}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		made, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil || made.Status.Incomplete {
			return nil, fmt.Errorf("rules of %s: incomplete %v, %w", user, made.Status.Incomplete, err)
		}
		for _, r := range made.Status.ResourceRules {
			lines = append(lines, flatten([]rbacv1.PolicyRule{{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames}})...)
		}
		return lines, nil
	}
	nobody, err := all("system:serviceaccount:" + metav1.NamespaceDefault + ":nobody")
	if err != nil {
		return nil, err
	}
	lines, err := all(a.user)
	lines = slices.DeleteFunc(lines, func(line string) bool { return slices.Contains(nobody, line) })
	slices.Sort(lines)
	return slices.Compact(lines), err
}

// harmful asks the API server whether the account may get or create a subresource, write a
// resource, or read Secrets. It asks about every resource and subresource that the API server
// serves, cluster-wide and in each of the namespaces. It returns the requests that are allowed.
func (a account) harmful(t *testing.T, namespaces []string) (found []string) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(a.s.Config())
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	asked := map[authorizationv1.ResourceAttributes]bool{}
	for _, l := range lists {
		group, _, ok := strings.Cut(l.GroupVersion, "/")
		if !ok {
			group = ""
		}
		for _, r := range l.APIResources {
			resource, subresource, isSub := strings.Cut(r.Name, "/")
			verbs := []string{"create", "patch", "delete"}
			switch {
			case isSub:
				verbs = []string{"get", "create"}
			case r.Name == "secrets":
				verbs = append(verbs, "get", "list", "watch")
			case strings.HasSuffix(r.Name, "reviews"): // a review stores nothing
				continue
			}
			for _, verb := range verbs {
				for _, namespace := range append([]string{""}, namespaces...) {
					asked[authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource}] = true
				}
			}
		}
	}
	var (
		mu      sync.Mutex
		failure error
		wait    sync.WaitGroup
		workers = make(chan struct{}, 8)
	)
	for access := range asked {
		workers <- struct{}{}
		wait.Go(func() {
			defer func() { <-workers }()
			allowed, err := a.may(t.Context(), access)
			mu.Lock()
			defer mu.Unlock()
			if failure = errors.Join(failure, err); allowed {
				found = append(found, describe(access))
			}
		})
	}
	wait.Wait()
	if failure != nil {
		t.Fatal(failure)
	}
	slices.Sort(found)
	return found
}

func (a account) may(ctx context.Context, access authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &access, User: a.user, Groups: a.groups}}
	made, err := a.s.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return made.Status.Allowed, nil
}

// await waits until the API server allows the account everything that the roles in the manifests
// grant. The API server's authorizer watches roles and bindings, so it sees them shortly after they
// are created.
func (a account) await(t *testing.T, namespace string, m manifests) {
	t.Helper()
	for _, o := range m {
		where := ""
		switch {
		case o.GroupVersionKind().Group != rbacv1.GroupName:
			continue
		case o.GetKind() == "Role":
			where = cmp.Or(o.GetNamespace(), namespace)
		case o.GetKind() != "ClusterRole":
			continue
		}
		for _, r := range convert[rbacv1.ClusterRole](t, o).Rules {
			for _, access := range attributes(where, r) {
				poll.Try(t, a.user+" may "+describe(access), func(ctx context.Context) error {
					allowed, err := a.may(ctx, access)
					if err == nil && !allowed {
						err = errors.New("not yet")
					}
					return err
				})
			}
		}
	}
}

// attributes returns the attributes of each request that a rule allows.
func attributes(namespace string, r rbacv1.PolicyRule) (all []authorizationv1.ResourceAttributes) {
	names := r.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				for _, name := range names {
					all = append(all, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Name: name})
				}
			}
		}
	}
	return all
}

func describe(a authorizationv1.ResourceAttributes) string {
	resource := a.Resource
	if a.Group != "" {
		resource += "." + a.Group
	}
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Namespace == "" {
		return a.Verb + " " + resource
	}
	return a.Verb + " " + resource + " in " + a.Namespace
}

// TestMetricsAuth_Slow verifies that with config.metricsAuth, the chart grants the forwarder the
// permissions it needs to decide who may read metrics.
func TestMetricsAuth_Slow(t *testing.T) {
	s := newAPIServer(t)
	release := s.namespace(t, "kuberelay", restricted)
	m := render(t, release, values{"config": values{
		"resources": []string{"configmaps"}, "sink": "stdout", "metricsAuth": true, "listenAddr": freeAddress(t),
	}})
	reader, other := s.namespace(t, "reader", nil), s.namespace(t, "other", nil)
	for _, rights := range []manifests{
		m, bound(t, reader, rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}), bound(t, other),
	} {
		if err := s.apply(t, release, rights); err != nil {
			t.Fatal(err)
		}
	}
	account := m.podTemplate(t).Spec.ServiceAccountName
	env := m.environment(t)
	f := launch(t, env, s.kubeconfig(t, release, account, m))
	token := func(namespace string) string {
		made, err := s.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "kr-kuberelay", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made.Status.Token
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // self-signed
	defer client.CloseIdleConnections()
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"a reader": {token(reader), http.StatusOK}, "another account": {token(other), http.StatusForbidden}, "nobody": {"", http.StatusUnauthorized},
	} {
		poll.Try(t, "an answer to "+name, func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+env["KUBERELAY_LISTEN_ADDR"]+"/metrics", http.NoBody)
			if err != nil {
				return err
			}
			if c.token != "" {
				request.Header.Set("Authorization", "Bearer "+c.token)
			}
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != c.want {
				return fmt.Errorf("got %s, want %d", response.Status, c.want)
			}
			return nil
		})
	}
	stop(t, f)
	if all, refused := requests(t, "system:serviceaccount:"+release+":"+account); all == 0 || len(refused) > 0 {
		t.Errorf("of %d requests these were refused: %v", all, refused)
	}
}
