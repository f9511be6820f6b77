package operations

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// Limits of the authorization: the lifetime of a verdict, the number of cached verdicts, and the time
// of a review.
const (
	allowedFor    = time.Minute
	deniedFor     = 10 * time.Second
	maxVerdicts   = 256
	reviewTimeout = 3 * time.Second // shorter than the default response timeout of the commands
)

// NotReviewed is the beginning of the body of a 503 response. The server sends that response if it
// could not review the token of the request.
const NotReviewed = "the API server does not review tokens"

// Authorizer admits a request if the API server accepts its bearer token and lets the user get
// the path. The metrics server of controller-runtime does the same.
type Authorizer struct {
	Tokens  authenticationclient.TokenReviewInterface
	Reviews authorizationclient.SubjectAccessReviewInterface
	Now     func() time.Time
	Log     *slog.Logger

	failing atomic.Bool // the last review failed, and the failure is logged

	mu       sync.Mutex
	verdicts map[question]verdict
}

// question identifies the request that a verdict is about. It has a hash of the token, so that no
// credentials stay in memory.
type question struct {
	token [sha256.Size]byte
	path  string
}

type verdict struct {
	status int // 200, 401, or 403
	until  time.Time
}

// status returns 200 for a request whose user may get the path, 403 for any other user, 401 for a
// request without a valid token, and 503 with a reason if the review failed. The reason names no
// host, because unauthenticated callers see it.
func (a *Authorizer) status(r *http.Request, path string) (status int, reason string) {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(kind, "Bearer") || token == "" {
		return http.StatusUnauthorized, ""
	}
	q := question{sha256.Sum256([]byte(token)), path}
	if v, ok := a.known(q); ok {
		return v, ""
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout) // unauthenticated callers can cause reviews
	defer cancel()
	status, err := a.review(ctx, token, path)
	if err != nil {
		if r.Context().Err() == nil && !a.failing.Swap(true) { // the caller is still waiting
			a.Log.Warn("cannot review the token of a request", "path", path, "err", err)
		}
		return http.StatusServiceUnavailable, NotReviewed + ": " + whyNotReviewed(err)
	}
	a.failing.Store(false)
	a.keep(q, status)
	return status, ""
}

func whyNotReviewed(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "the forwarder may not create TokenReviews and SubjectAccessReviews"
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no response within %s", reviewTimeout)
	}
	return "the log of the forwarder has the error"
}

// remedy returns text that says what to change. It goes at the end of an error message.
func remedy(err error) string {
	if apierrors.IsForbidden(err) {
		return "; bind the ClusterRole system:auth-delegator to the forwarder's service account, as KUBERELAY_METRICS_AUTH requires"
	}
	return ""
}

func (a *Authorizer) review(ctx context.Context, token, path string) (status int, err error) {
	t, err := a.Tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("create a TokenReview: %w%s", err, remedy(err))
	}
	if !t.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := t.Status.User
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}
	for k, v := range user.Extra {
		spec.Extra[k] = authorizationv1.ExtraValue(v)
	}
	s, err := a.Reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("create a SubjectAccessReview: %w%s", err, remedy(err))
	}
	if !s.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

func (a *Authorizer) known(q question) (status int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, ok := a.verdicts[q]
	return v.status, ok && a.Now().Before(v.until)
}

// keep stores a verdict. It limits the number of verdicts, because a caller can present any number
// of tokens.
func (a *Authorizer) keep(q question, status int) {
	stands := deniedFor
	if status == http.StatusOK {
		stands = allowedFor
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.verdicts) >= maxVerdicts || a.verdicts == nil {
		a.verdicts = map[question]verdict{}
	}
	a.verdicts[q] = verdict{status, a.Now().Add(stands)}
}

// protect serves only requests that the Authorizer admits. A nil Authorizer admits all requests.
func (a *Authorizer) protect(h http.Handler) http.Handler { return a.protectAs("", h) }

// protectAs serves only requests whose user may get the given path. If path is "", it uses the path
// of the request.
func (a *Authorizer) protectAs(path string, h http.Handler) http.Handler {
	if a == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, reason := a.status(r, cmp.Or(path, r.URL.Path))
		if status == http.StatusOK {
			h.ServeHTTP(w, r)
			return
		}
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, cmp.Or(reason, http.StatusText(status)), status)
	})
}
