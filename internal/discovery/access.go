package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/kuberelay/kuberelay/internal/event"
)

// ReviewInterval is the time for which the result of an access review stays valid.
const ReviewInterval = 30 * time.Second

// reviewTimeout limits one review.
const reviewTimeout = 10 * time.Second

// neededVerbs are the verbs that a watch of a resource needs. Confirming a delete also needs get,
// but no review checks that verb: if it is denied, the get request itself fails.
var neededVerbs = [...]string{"list", "watch"}

// Access checks which resources the forwarder may read. It is safe for concurrent use.
type Access struct {
	reviews authorizationclient.SelfSubjectAccessReviewInterface
	rules   rules
	now     func() time.Time

	// all caches whether the forwarder may list and watch everything.
	all struct {
		sync.Mutex
		asked   time.Time
		allowed bool
	}
}

// NewAccess returns an Access. If r is nil, the Access reviews each resource separately.
func NewAccess(reviews authorizationclient.SelfSubjectAccessReviewInterface, r authorizationclient.SelfSubjectRulesReviewInterface, now func() time.Time) *Access {
	return &Access{reviews: reviews, rules: rules{reviews: r}, now: now}
}

// Denied returns an error if the forwarder lacks permission to list or to watch a resource in a
// namespace. The namespace "" means all namespaces. The error is a Forbidden error, like one from the
// API server, and names the first missing permission. A failed review denies nothing, and neither
// does a nil Access.
func (a *Access) Denied(ctx context.Context, r event.Resource, namespace string) error {
	denied, _ := a.denies(ctx, r, namespace)
	return denied
}

// denies is like Denied, and also returns the error of a failed review.
func (a *Access) denies(ctx context.Context, r event.Resource, namespace string) (denied, failed error) {
	if a == nil || a.allowsAll(ctx) {
		return nil, nil
	}
	rules := a.rules.in(ctx, namespace, a.now())
	for _, verb := range neededVerbs {
		var allowed bool
		var why string
		var err error
		if rules != nil {
			allowed = permits(rules, verb, r)
		} else {
			allowed, why, err = a.Review(ctx, verb, r.Group, r.Resource, namespace)
		}
		if failed = cmp.Or(failed, err); err == nil && !allowed {
			where, cure := "in all namespaces", "; if only some namespaces are readable, name them in KUBERELAY_NAMESPACES"
			switch {
			case !r.Namespaced:
				where, cure = "in the cluster", ""
			case namespace != "":
				where, cure = fmt.Sprintf("in the namespace %q", namespace), ""
			}
			if why != "" {
				why = ": " + why
			}
			why += cure
			return apierrors.NewForbidden(r.GroupResource(), "", fmt.Errorf("may not %s it %s%s", verb, where, why)), nil
		}
	}
	return nil, failed
}

// allowsAll reports whether the forwarder may list and watch all resources. It needs only one review
// for each verb.
func (a *Access) allowsAll(ctx context.Context) bool {
	a.all.Lock()
	defer a.all.Unlock()
	now := a.now()
	if now.Sub(a.all.asked) < ReviewInterval && !a.all.asked.IsZero() {
		return a.all.allowed
	}
	a.all.allowed = true
	for _, verb := range neededVerbs {
		allowed, _, err := a.Review(ctx, verb, "*", "*", "")
		if err != nil || !allowed {
			a.all.allowed = false
			break
		}
	}
	if ctx.Err() == nil {
		a.all.asked = now
	}
	return a.all.allowed
}

// Review checks one permission for all versions of a resource. The result why contains the reason
// given by the API server, if any.
func (a *Access) Review(ctx context.Context, verb, group, resource, namespace string) (allowed bool, why string, err error) {
	return a.review(ctx, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Version: "*", Resource: resource})
}

func (a *Access) review(ctx context.Context, of authorizationv1.ResourceAttributes) (allowed bool, why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	answer, err := a.reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &of},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return false, "", fmt.Errorf("review access to %s: %w", of.Resource, err)
	case answer.Status.EvaluationError != "" && !answer.Status.Allowed:
		return false, "", errors.New(answer.Status.EvaluationError)
	}
	return answer.Status.Allowed, answer.Status.Reason, nil
}
