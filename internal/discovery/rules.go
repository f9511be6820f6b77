package discovery

import (
	"context"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/kuberelay/kuberelay/internal/event"
)

// rules reads the permissions for a whole namespace. This takes one request instead of two for each
// resource.
type rules struct {
	reviews authorizationclient.SelfSubjectRulesReviewInterface // nil if rules reviews are not available

	mu      sync.Mutex
	answers map[string]rulesAnswer
}

type rulesAnswer struct {
	asked time.Time
	rules []authorizationv1.ResourceRule // nil if the review failed or is incomplete
}

// in returns the rules for the forwarder in a namespace. It returns nil if the API server cannot
// list all rules, because some authorizers do not support that.
func (r *rules) in(ctx context.Context, namespace string, now time.Time) []authorizationv1.ResourceRule {
	if r.reviews == nil || namespace == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.answers[namespace]; ok && now.Sub(a.asked) < ReviewInterval {
		return a.rules
	}
	asking, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	answer, err := r.reviews.Create(asking, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	a := rulesAnswer{asked: now}
	if err == nil && !answer.Status.Incomplete {
		a.rules = append([]authorizationv1.ResourceRule{}, answer.Status.ResourceRules...)
	}
	if ctx.Err() != nil {
		return nil
	}
	for other, old := range r.answers {
		if now.Sub(old.asked) >= ReviewInterval {
			delete(r.answers, other) // the namespace might no longer exist
		}
	}
	if r.answers == nil {
		r.answers = map[string]rulesAnswer{}
	}
	r.answers[namespace] = a
	return a.rules
}

// permits reports whether rules allow a verb on all objects of a resource.
func permits(rules []authorizationv1.ResourceRule, verb string, r event.Resource) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, "*") || slices.Contains(all, one) }
	return slices.ContainsFunc(rules, func(rule authorizationv1.ResourceRule) bool {
		return len(rule.ResourceNames) == 0 && has(rule.Verbs, verb) && has(rule.APIGroups, r.Group) && has(rule.Resources, r.Resource)
	})
}
