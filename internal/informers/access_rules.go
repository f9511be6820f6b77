package informers

import (
	"context"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Rules asks the API server for all that we may do in a namespace; client-go's
// SelfSubjectRulesReviewInterface is one.
type Rules interface {
	Create(ctx context.Context, review *authorizationv1.SelfSubjectRulesReview, o metav1.CreateOptions) (*authorizationv1.SelfSubjectRulesReview, error)
}

// rulesByNamespace are the answers of the last while: one question for each namespace
// instead of two for each resource in it.
type rulesByNamespace struct {
	mu      sync.Mutex
	answers map[string]rulesAnswer
}

type rulesAnswer struct {
	asked time.Time
	rules []authorizationv1.ResourceRule // nil if the answer is not complete
}

// rulesIn gives what we may do in a namespace, nil if that cannot be told: an authorizer
// may be unable to list its rules.
func (s *Set) rulesIn(ctx context.Context, namespace string) []authorizationv1.ResourceRule {
	if s.config.Rules == nil || namespace == "" {
		return nil
	}
	s.rules.mu.Lock()
	defer s.rules.mu.Unlock()
	now := s.config.Now()
	if a, ok := s.rules.answers[namespace]; ok && now.Sub(a.asked) < askAgain {
		return a.rules
	}
	asking, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	answer, err := s.config.Rules.Create(asking, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	a := rulesAnswer{asked: now}
	if err == nil && !answer.Status.Incomplete {
		a.rules = append([]authorizationv1.ResourceRule{}, answer.Status.ResourceRules...)
	}
	if ctx.Err() != nil {
		return nil
	}
	for other, old := range s.rules.answers {
		if now.Sub(old.asked) >= askAgain {
			delete(s.rules.answers, other) // namespaces come and go
		}
	}
	if s.rules.answers == nil {
		s.rules.answers = map[string]rulesAnswer{}
	}
	s.rules.answers[namespace] = a
	return a.rules
}

// permits tells whether rules let us do something with all objects of a resource.
func permits(rules []authorizationv1.ResourceRule, verb string, r event.Resource) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, "*") || slices.Contains(all, one) }
	return slices.ContainsFunc(rules, func(rule authorizationv1.ResourceRule) bool {
		return len(rule.ResourceNames) == 0 && has(rule.Verbs, verb) && has(rule.APIGroups, r.Group) && has(rule.Resources, r.Resource)
	})
}
