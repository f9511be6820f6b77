package typed

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestAsClientGo: what is sent is what client-go's own clients send, to the byte, and an
// answer is read as they read it.
func TestAsClientGo(t *testing.T) {
	holder := "me"
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "l", Namespace: "ns", ResourceVersion: "7"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: time.Unix(1, 2000)}},
	}
	access := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"},
	}}
	rules := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "ns"}}

	var asked string
	answers := map[string]string{
		"lease":  `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l","namespace":"ns"},"spec":{"holderIdentity":"you","renewTime":"2026-01-02T03:04:05.000006Z"}}`,
		"access": `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{},"status":{"allowed":true,"reason":"why"}}`,
		"rules":  `{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","spec":{},"status":{"resourceRules":[{"verbs":["*"]}],"nonResourceRules":[],"incomplete":true}}`,
		"error":  `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`,
	}
	var answer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = fmt.Sprintf("%s %s %v\n%q", r.Method, r.URL, r.Header, body)
		w.Header().Set("Content-Type", "application/json")
		if answer == "error" {
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = io.WriteString(w, answers[answer])
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	theirs, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	leases, err := NewLeases(config)
	if err != nil {
		t.Fatal(err)
	}
	reviews, err := NewReviews(config)
	if err != nil {
		t.Fatal(err)
	}

	ctx := t.Context()
	for _, tc := range []struct {
		name, answer string
		ours, theirs func(context.Context) (any, error)
	}{
		{"get", "lease", func(ctx context.Context) (any, error) {
			return leases.Leases("ns").Get(ctx, "l", metav1.GetOptions{ResourceVersion: "0"})
		}, func(ctx context.Context) (any, error) {
			return theirs.CoordinationV1().Leases("ns").Get(ctx, "l", metav1.GetOptions{ResourceVersion: "0"})
		}},
		{"create", "lease", func(ctx context.Context) (any, error) {
			return leases.Leases("ns").Create(ctx, lease.DeepCopy(), metav1.CreateOptions{FieldManager: "f"})
		}, func(ctx context.Context) (any, error) {
			return theirs.CoordinationV1().Leases("ns").Create(ctx, lease.DeepCopy(), metav1.CreateOptions{FieldManager: "f"})
		}},
		{"update", "lease", func(ctx context.Context) (any, error) {
			return leases.Leases("ns").Update(ctx, lease.DeepCopy(), metav1.UpdateOptions{})
		}, func(ctx context.Context) (any, error) {
			return theirs.CoordinationV1().Leases("ns").Update(ctx, lease.DeepCopy(), metav1.UpdateOptions{})
		}},
		{"conflict", "error", func(ctx context.Context) (any, error) {
			return leases.Leases("ns").Update(ctx, lease.DeepCopy(), metav1.UpdateOptions{})
		}, func(ctx context.Context) (any, error) {
			return theirs.CoordinationV1().Leases("ns").Update(ctx, lease.DeepCopy(), metav1.UpdateOptions{})
		}},
		{"access", "access", func(ctx context.Context) (any, error) {
			return reviews.SelfSubjectAccessReviews().Create(ctx, access.DeepCopy(), metav1.CreateOptions{})
		}, func(ctx context.Context) (any, error) {
			return theirs.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, access.DeepCopy(), metav1.CreateOptions{})
		}},
		{"rules", "rules", func(ctx context.Context) (any, error) {
			return reviews.SelfSubjectRulesReviews().Create(ctx, rules.DeepCopy(), metav1.CreateOptions{})
		}, func(ctx context.Context) (any, error) {
			return theirs.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, rules.DeepCopy(), metav1.CreateOptions{})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer = tc.answer
			got, gotErr := tc.ours(ctx)
			sent := asked
			want, wantErr := tc.theirs(ctx)
			if sent != asked {
				t.Errorf("sent\n%s\nclient-go sends\n%s", sent, asked)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || apierrors.IsConflict(gotErr) != (tc.answer == "error") {
				t.Errorf("got %v, %v\nclient-go has %v, %v", got, gotErr, want, wantErr)
			}
		})
	}
}
