// Package typed has the clients of the few resources that the forwarder reads and writes
// as what they are. They send and read as those of client-go's kubernetes/typed, and have
// only the methods that are called here.
package typed

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/clientgo/scheme"
)

// LeasesGetter gives the leases of a namespace.
type LeasesGetter interface {
	Leases(namespace string) LeaseInterface
}

// LeaseInterface is what an election needs of leases.
type LeaseInterface interface {
	Create(context.Context, *coordinationv1.Lease, metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(context.Context, *coordinationv1.Lease, metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
}

// Leases are those of a cluster. Make them with [NewLeases].
type Leases struct{ rest rest.Interface }

var _ LeasesGetter = (*Leases)(nil)

// NewLeases makes a client; its errors are of the configuration.
func NewLeases(config *rest.Config) (*Leases, error) {
	client, err := newClient(config, coordinationv1.SchemeGroupVersion)
	return &Leases{client}, err
}

// Leases is part of [LeasesGetter].
func (l *Leases) Leases(namespace string) LeaseInterface { return leases{l.rest, namespace} }

type leases struct {
	rest      rest.Interface
	namespace string
}

func (l leases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return send(ctx, l.to(l.rest.Get()).Name(name), &o, nil, &coordinationv1.Lease{})
}

func (l leases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return send(ctx, l.to(l.rest.Post()), &o, lease, &coordinationv1.Lease{})
}

func (l leases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return send(ctx, l.to(l.rest.Put()).Name(lease.Name), &o, lease, &coordinationv1.Lease{})
}

func (l leases) to(r *rest.Request) *rest.Request {
	return r.NamespaceIfScoped(l.namespace, l.namespace != "").Resource("leases")
}

// Reviews ask what the client itself may do. Make them with [NewReviews].
type Reviews struct{ rest rest.Interface }

// NewReviews makes a client; its errors are of the configuration.
func NewReviews(config *rest.Config) (*Reviews, error) {
	client, err := newClient(config, authorizationv1.SchemeGroupVersion)
	return &Reviews{client}, err
}

// SelfSubjectAccessReviews ask about one act.
func (r *Reviews) SelfSubjectAccessReviews() AccessReviews { return AccessReviews{r.rest} }

// AccessReviews are made with [Reviews.SelfSubjectAccessReviews].
type AccessReviews struct{ rest rest.Interface }

// Create gives the API server's answer in the review's status.
func (r AccessReviews) Create(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	return send(ctx, r.rest.Post().Resource("selfsubjectaccessreviews"), &o, review, &authorizationv1.SelfSubjectAccessReview{})
}

// SelfSubjectRulesReviews ask about a namespace.
func (r *Reviews) SelfSubjectRulesReviews() RulesReviews { return RulesReviews{r.rest} }

// RulesReviews are made with [Reviews.SelfSubjectRulesReviews].
type RulesReviews struct{ rest rest.Interface }

// Create gives the API server's answer in the review's status.
func (r RulesReviews) Create(ctx context.Context, review *authorizationv1.SelfSubjectRulesReview, o metav1.CreateOptions) (*authorizationv1.SelfSubjectRulesReview, error) {
	return send(ctx, r.rest.Post().Resource("selfsubjectrulesreviews"), &o, review, &authorizationv1.SelfSubjectRulesReview{})
}

func newClient(config *rest.Config, gv schema.GroupVersion) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	config.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme.Scheme, scheme.Codecs).WithoutConversion()
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return rest.RESTClientFor(config)
}

// send gives what was read also with an error, as client-go's clients do. The form is
// chosen before the body, which is written in it.
func send[T runtime.Object](ctx context.Context, r *rest.Request, o, body runtime.Object, into T) (T, error) {
	r = r.UseProtobufAsDefaultIfPreferred(true).VersionedParams(o, scheme.ParameterCodec)
	if body != nil {
		r = r.Body(body)
	}
	err := r.Do(ctx).Into(into)
	return into, err
}
