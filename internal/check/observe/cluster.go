package observe

import (
	"context"
	"strconv"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/explain"
)

const (
	askers     = 8  // maximum number of concurrent requests
	sampleSize = 20 // objects to read from each list
)

// rights asks the API server which of these rights the user has.
func (c *cluster) rights(ctx context.Context, rights []check.Right) map[check.Right]check.Answer {
	answers := map[check.Right]check.Answer{}
	client, err := authorizationclient.NewForConfig(c.rest)
	var mu sync.Mutex
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), askers, len(rights), func(i int) { // if ctx ends, each request fails
		answer := check.Answer{Err: err}
		if err == nil {
			answer = review(ctx, client, rights[i])
		}
		mu.Lock()
		defer mu.Unlock()
		answers[rights[i]] = answer
	})
	return answers
}

func review(ctx context.Context, client authorizationclient.AuthorizationV1Interface, r check.Right) check.Answer {
	answer, err := client.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.Verb, Group: r.Group, Version: "*", Resource: r.Resource, Namespace: r.Namespace, Name: r.Name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return check.Answer{Err: err}
	}
	return check.Answer{Allowed: answer.Status.Allowed}
}

// lease reads the Lease. A holder that has not renewed it in time does not count.
func (c *cluster) lease(ctx context.Context, l config.Leader, namespace string) check.Lease {
	is := check.Lease{Namespace: namespace, Name: l.LeaseName}
	client, err := coordinationclient.NewForConfig(c.rest)
	if err != nil {
		is.Err = err
		return is
	}
	found, err := client.Leases(namespace).Get(ctx, l.LeaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return is
	case err != nil:
		is.Err = err
		return is
	}
	is.Exists = true
	s := found.Spec
	if s.HolderIdentity != nil && s.RenewTime != nil && s.LeaseDurationSeconds != nil &&
		time.Since(s.RenewTime.Time) < time.Duration(*s.LeaseDurationSeconds)*time.Second {
		is.Holder = *s.HolderIdentity
	}
	return is
}

// lists reads the first objects of each watched resource, in each namespace that is watched
// separately.
func (c *cluster) lists(ctx context.Context, w config.Watch, x explain.Explanation) []check.List {
	watched := x.Watched()
	all := make([]check.List, len(watched))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), askers, len(watched), func(i int) { all[i] = c.list(ctx, w, watched[i]) })
	return all
}

func (c *cluster) list(ctx context.Context, w config.Watch, r explain.Explained) check.List {
	sum := check.List{Resource: r.Name}
	namespaces := []string{""}
	if r.Scope == explain.NamespacesScope {
		namespaces = r.Namespaces
	}
	for _, namespace := range namespaces {
		request := c.discovery.RESTClient().Get().AbsPath(r.Resource.Path(r.Resource.Key(namespace, ""))).Param("limit", strconv.Itoa(sampleSize))
		if w.LabelSelector != "" {
			request.Param("labelSelector", w.LabelSelector)
		}
		if w.FieldSelector != "" {
			request.Param("fieldSelector", w.FieldSelector)
		}
		body, err := request.DoRaw(ctx)
		if err == nil {
			err = sum.Add(body)
		}
		if err != nil {
			sum.Err = err
			return sum
		}
	}
	return sum
}
