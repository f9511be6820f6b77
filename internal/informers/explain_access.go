package informers

import (
	"context"
	"fmt"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answered asks each question once. The first that has no answer is the last that is asked.
type answered struct {
	ask Access

	mu      sync.Mutex
	answers map[authorizationv1.ResourceAttributes]*authorizationv1.SelfSubjectAccessReview
	failed  error
	doubt   string // why a question was answered with neither yes nor no
}

var _ Access = (*answered)(nil)

// Create is part of [Access].
func (a *answered) Create(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	about := *review.Spec.ResourceAttributes
	a.mu.Lock()
	answer, failed := a.answers[about], a.failed
	a.mu.Unlock()
	if answer != nil || failed != nil {
		return answer, failed
	}
	answer, err := a.ask.Create(ctx, review, o)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed = fmt.Errorf("ask what may be read: %w", err)
		return nil, a.failed
	}
	a.answers[about] = answer
	if !answer.Status.Allowed && a.doubt == "" {
		a.doubt = answer.Status.EvaluationError
	}
	return answer, nil
}
