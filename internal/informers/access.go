package informers

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Access asks the API server what we may do; client-go's
// SelfSubjectAccessReviewInterface is one.
type Access interface {
	Create(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error)
}

// neededVerbs are those without which a resource is not watched. Get is needed too, to
// confirm deletes, but what fails then says so by itself.
var neededVerbs = [...]string{"list", "watch"}

// denied asks whether a resource may be listed and watched in a namespace, "" for all of
// them, and gives an error that says what is missing, in the form in which the API server
// would refuse. Where the question cannot be answered nothing is said to be missing: the
// request itself will tell.
func (s *Set) denied(ctx context.Context, r event.Resource, namespace string) error {
	if s.config.Access == nil || s.mayAll(ctx) {
		return nil
	}
	rules := s.rulesIn(ctx, namespace)
	for _, verb := range neededVerbs {
		var allowed bool
		var why string
		var err error
		if rules != nil {
			allowed = permits(rules, verb, r)
		} else {
			allowed, why, err = s.review(ctx, verb, r.Group, r.Resource, namespace)
		}
		if err == nil && !allowed {
			where := "in all namespaces"
			switch {
			case !r.Namespaced:
				where = "in the cluster"
			case namespace != "":
				where = fmt.Sprintf("in the namespace %q", namespace)
			}
			if why != "" {
				why = ": " + why
			}
			return apierrors.NewForbidden(r.GroupResource(), "", fmt.Errorf("may not %s it %s%s", verb, where, why))
		}
	}
	return nil
}

// mayAll tells whether everything may be listed and watched, as a quick answer for all
// resources at once. It asks again from time to time.
func (s *Set) mayAll(ctx context.Context) bool {
	s.everything.Lock()
	defer s.everything.Unlock()
	now := s.config.Now()
	if now.Sub(s.everything.asked) < askAgain && !s.everything.asked.IsZero() {
		return s.everything.allowed
	}
	s.everything.allowed = true
	for _, verb := range neededVerbs {
		allowed, _, err := s.review(ctx, verb, "*", "*", "")
		if err != nil || !allowed {
			s.everything.allowed = false
			break
		}
	}
	if ctx.Err() == nil {
		s.everything.asked = now
	}
	return s.everything.allowed
}

func (s *Set) review(ctx context.Context, verb, group, resource, namespace string) (allowed bool, why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	answer, err := s.config.Access.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: group, Version: "*", Resource: resource,
		}},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return false, "", fmt.Errorf("ask whether %s may be read: %w", resource, err)
	case answer.Status.EvaluationError != "" && !answer.Status.Allowed:
		return false, "", errors.New(answer.Status.EvaluationError)
	}
	return answer.Status.Allowed, answer.Status.Reason, nil
}

// askAgain is after what time it is asked again what we may do.
const askAgain = 30 * time.Second
