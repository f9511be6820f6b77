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
)

// TokenReviews is the part of the API client that identifies the user of a token.
type TokenReviews interface {
	Create(context.Context, *authenticationv1.TokenReview, metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// AccessReviews is the part of the API client that checks what a user may do.
type AccessReviews interface {
	Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// The lifetime of a verdict, and the number of verdicts that are kept.
const (
	allowedFor    = time.Minute
	deniedFor     = 10 * time.Second
	maxVerdicts   = 256
	reviewTimeout = 3 * time.Second // less than the commands wait for an answer
)

// NotReviewed begins the body of a response with status 503 to a request whose token was not
// reviewed.
const NotReviewed = "the API server does not review tokens"

// Authorizer admits requests whose bearer token the API server accepts and whose user it
// allows to get the path, as the metrics server of controller-runtime does.
type Authorizer struct {
	Tokens  TokenReviews
	Reviews AccessReviews
	Now     func() time.Time
	Log     *slog.Logger

	failing atomic.Bool // the last review failed, and the log says so

	mu       sync.Mutex
	verdicts map[question]verdict
}

// question identifies what a verdict is about. It has a hash of the token, so that no credentials
// stay in memory.
type question struct {
	token [sha256.Size]byte
	path  string
}

type verdict struct {
	status int // 200, 401 or 403
	until  time.Time
}

// Status returns 200 for a request whose user may get the path, 403 for others, 401 without a valid
// token, and 503 with a reason if the API server does not tell. The reason names no host, because
// anyone gets it.
func (a *Authorizer) Status(r *http.Request, path string) (status int, reason string) {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(kind, "Bearer") || token == "" {
		return http.StatusUnauthorized, ""
	}
	q := question{sha256.Sum256([]byte(token)), path}
	if v, ok := a.known(q); ok {
		return v, ""
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout) // anyone can present tokens
	defer cancel()
	status, err := a.review(ctx, token, path)
	if err != nil {
		if !a.failing.Swap(true) {
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
		return fmt.Sprintf("no answer within %s", reviewTimeout)
	}
	return "the log of the forwarder has the error"
}

// remedy is the end of an error: what to change.
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

// keep bounds the verdicts: a caller can present any number of tokens.
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

// protect serves only requests that the Authorizer admits; all if it is nil.
func (a *Authorizer) protect(h http.Handler) http.Handler { return a.protectAs("", h) }

// protectAs serves only requests whose user may get the given path, or that of the request if it is
// "".
func (a *Authorizer) protectAs(path string, h http.Handler) http.Handler {
	if a == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, reason := a.Status(r, cmp.Or(path, r.URL.Path))
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
