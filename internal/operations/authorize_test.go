package operations

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/logtest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

var cluster = controlplanetest.Shared{Options: controlplane.Options{Users: map[string][]string{"forwarder": nil}}}

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// TestCallerGone verifies that a caller that disconnects during a review causes no warning. Before the
// fix, it caused one, although the API server was healthy.
func TestCallerGone(t *testing.T) {
	cp := cluster.ControlPlane(t)
	admin, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	var log logtest.Log
	a := &Authorizer{Tokens: admin.AuthenticationV1().TokenReviews(), Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil))}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(gone, http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Authorization", "Bearer guess")
	if status, _ := a.status(r, "/metrics"); status != http.StatusServiceUnavailable || log.String() != "" {
		t.Errorf("got %d, log %q", status, log.String())
	}
}

// TestAuthorization verifies that the API server decides who sees metrics, profiles, the page and
// the text of /readyz. The forwarder itself needs only the rights of system:auth-delegator.
func TestAuthorization(t *testing.T) {
	cp := cluster.ControlPlane(t)
	admin, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespace := controlplanetest.Namespace(t, cp)
	scraper, other := account(t, admin, namespace, "scraper"), account(t, admin, namespace, "other")
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/debug/pprof/*", SupportPath + "*"}}},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind(t, admin, role.Name, rbacv1.Subject{Kind: "ServiceAccount", Name: "scraper", Namespace: namespace})
	bind(t, admin, "system:auth-delegator", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "forwarder"})
	forwarder, err := kubernetes.NewForConfig(cp.ConfigFor("forwarder"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	a := &Authorizer{
		Tokens: forwarder.AuthenticationV1().TokenReviews(), Reviews: forwarder.AuthorizationV1().SubjectAccessReviews(),
		Now: func() time.Time { return began }, Log: silent(), // /readyz uses the verdict about /metrics, and does not say that a review failed
	}
	e := Endpoints{Access: a, Profiles: true, Support: echo, Status: func(url.Values) (any, error) { return "status", nil }, Trace: func(url.Values) (any, error) { return "", nil }, Page: blank{}, Ready: []Check{{Name: "bus", Check: failing("not connected to nats://secret-host")}}}
	url := serve(t, e)
	for { // the API server applies new roles after a moment
		if res, _ := requestAs(t, scraper, http.MethodGet, url+"/metrics"); res.StatusCode == http.StatusOK {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("the scraper is not admitted")
		}
		a.mu.Lock()
		a.verdicts = nil
		a.mu.Unlock()
		<-time.After(50 * time.Millisecond)
	}
	for _, c := range []struct {
		path, token string
		status      int
	}{
		{"/metrics", "", 401}, {"/metrics", "guess", 401}, {"/metrics", other, 403}, {"/metrics", scraper, 200},
		{"/debug/pprof/goroutine", "", 401}, {"/debug/pprof/goroutine", other, 403}, {"/debug/pprof/goroutine", scraper, 200},
		{StatusPath, "", 401}, {StatusPath, "guess", 401}, {StatusPath, other, 403}, {StatusPath, scraper, 200}, // other may get all paths below /api/
		{TracePath, "", 401}, {TracePath, other, 403}, {TracePath, scraper, 200},
		{"/", "", 401}, {"/", other, 403}, {"/", scraper, 200}, {"/page/page.js", "", 401}, {"/page/page.js", other, 403}, {"/page/page.js", scraper, 200},
		{StreamPath, "", 401}, {StreamPath, "guess", 401}, {StreamPath, other, 403}, {StreamPath, scraper, 200},
		{SupportPath + "log", "", 401}, {SupportPath + "log", "guess", 401}, {SupportPath + "log", other, 403}, {SupportPath + "log", scraper, 200},
		{"/debug/pprof/trace", "", 401}, {"/debug/pprof/profile", "", 401},
		{"/healthz", "", 200}, {"/readyz", "", 503}, {"/readyz", other, 503}, {"/readyz", scraper, 503},
	} {
		res, body := requestAs(t, c.token, http.MethodGet, url+c.path)
		for strings.HasPrefix(body, NotReviewed) { // the API server can be slow on a busy machine
			res, body = requestAs(t, c.token, http.MethodGet, url+c.path)
		}
		if res.StatusCode != c.status {
			t.Errorf("%s with %.5q: got %d %s, want %d", c.path, c.token, res.StatusCode, body, c.status)
		}
		if shown := strings.Contains(body, "secret-host"); shown != (c.path == "/readyz" && c.token == scraper) {
			t.Errorf("%s with %.5q: the body is %q", c.path, c.token, body)
		}
	}
}

// account creates a service account and returns a token for it.
func account(t *testing.T, client kubernetes.Interface, namespace, name string) string {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), sa, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}

func bind(t *testing.T, client kubernetes.Interface, role string, to rbacv1.Subject) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Subjects: []rbacv1.Subject{to},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// reviewer stands in for the API server. It accepts tokens that begin with "good" and counts reviews.
type reviewer struct {
	asked int
	err   error
}

func (r *reviewer) Create(_ context.Context, t *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	r.asked++
	t = t.DeepCopy()
	t.Status.Authenticated = strings.HasPrefix(t.Spec.Token, "good")
	return t, r.err
}

// allowing stands in for an API server that allows everything.
type allowing struct{}

func (allowing) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	r = r.DeepCopy()
	r.Status.Allowed = true
	return r, nil
}

// TestVerdictCache verifies that one review serves many requests, that a verdict expires,
// and that the number of verdicts is limited. A failed review is not cached.
func TestVerdictCache(t *testing.T) {
	r, now := &reviewer{}, time.Now()
	var log logtest.Log
	a := &Authorizer{Tokens: r, Reviews: allowing{}, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil))}
	ask := func(token, path string, want, reviews int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://forwarder"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "bearer "+token)
		r.asked = 0
		if got, _ := a.status(req, path); got != want || r.asked != reviews {
			t.Errorf("%s %s: got %d with %d reviews, want %d with %d", token, path, got, r.asked, want, reviews)
		}
	}
	ask("good", "/metrics", 200, 1)
	ask("good", "/metrics", 200, 0)
	ask("good", "/readyz", 200, 1) // another path needs another review
	ask("bad", "/metrics", 401, 1)
	ask("bad", "/metrics", 401, 0)
	ask("", "/metrics", 401, 0)
	now = now.Add(deniedFor)
	ask("bad", "/metrics", 401, 1)
	ask("good", "/metrics", 200, 0)
	now = now.Add(allowedFor)
	r.err = errors.New("the API server is unavailable")
	ask("good", "/metrics", 503, 1)
	ask("good", "/metrics", 503, 1)
	if got := log.String(); strings.Count(got, "is unavailable") != 1 || strings.Contains(got, "good") {
		t.Errorf("the log says %q, want one line without the token", got)
	}
	r.err = nil
	ask("good", "/metrics", 200, 1)
	for n := range 3 * maxVerdicts {
		ask(strings.Repeat("x", n+1), "/metrics", 401, 1)
	}
	if got := len(a.verdicts); got > maxVerdicts {
		t.Errorf("%d verdicts are kept, want %d at most", got, maxVerdicts)
	}
}

// TestNotReviewed verifies that a response says why the token was not reviewed, and names no host.
func TestNotReviewed(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "tokenreviews"}, "", errors.New("secret-host"))
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("dial tcp secret-host: connection refused"), "the log of the forwarder has the error"},
		{&url.Error{Op: "Post", URL: "https://secret-host", Err: context.DeadlineExceeded}, "no response within 3s"},
		{forbidden, "the forwarder may not create TokenReviews and SubjectAccessReviews"},
	} {
		a := &Authorizer{Tokens: &reviewer{err: c.err}, Reviews: allowing{}, Now: time.Now, Log: silent()}
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
		r.Header.Set("Authorization", "Bearer good")
		a.protect(http.NotFoundHandler()).ServeHTTP(w, r)
		if got := w.Body.String(); w.Code != http.StatusServiceUnavailable || got != NotReviewed+": "+c.want+"\n" {
			t.Errorf("%v: got %d %q, want %q", c.err, w.Code, got, c.want)
		}
	}
}

// TestTLS verifies that a server with TLS serves requests over TLS and refuses plain HTTP.
func TestTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	certificate, _, _ := ca.Issue("forwarder")
	url := serve(t, Endpoints{TLS: ca.Config(certificate)})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Config(), DisableKeepAlives: true}}
	res, err := client.Get(strings.Replace(url, "http:", "https:", 1) + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.TLS == nil {
		t.Errorf("got %s over %+v", res.Status, res.TLS)
	}
	if res, _ := request(t, http.MethodGet, url+"/healthz"); res.StatusCode == http.StatusOK {
		t.Error("/healthz is served without TLS")
	}
}
