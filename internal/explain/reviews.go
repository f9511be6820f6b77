package explain

import (
	"context"
	"fmt"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// cachedReviews remembers the answer to each review. After the first error, it sends no more reviews.
type cachedReviews struct {
	next authorizationclient.SelfSubjectAccessReviewInterface

	mu        sync.Mutex
	answers   map[authorizationv1.ResourceAttributes]*authorizationv1.SelfSubjectAccessReview
	failed    error
	undecided string // why the API server could not decide one of the reviews
}

var _ authorizationclient.SelfSubjectAccessReviewInterface = (*cachedReviews)(nil)

// Create implements [authorizationclient.SelfSubjectAccessReviewInterface].
func (a *cachedReviews) Create(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	about := *review.Spec.ResourceAttributes
	a.mu.Lock()
	answer, failed := a.answers[about], a.failed
	a.mu.Unlock()
	if answer != nil || failed != nil {
		return answer, failed
	}
	answer, err := a.next.Create(ctx, review, o)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed = fmt.Errorf("review access: %w", err)
		return nil, a.failed
	}
	a.answers[about] = answer
	if !answer.Status.Allowed && a.undecided == "" {
		a.undecided = answer.Status.EvaluationError
	}
	return answer, nil
}
