package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"k8s.io/client-go/discovery"
)

// builtInGroups contains the groups with a dot that kube-apiserver itself serves, up to Kubernetes
// 1.37. Every group without a dot is built in, because the group of a CustomResourceDefinition
// needs a dot.
var builtInGroups = []string{
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "auditregistration.k8s.io",
	"authentication.k8s.io", "authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io",
	"events.k8s.io", "flowcontrol.apiserver.k8s.io", "imagepolicy.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io",
	"node.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "settings.k8s.io", "storage.k8s.io",
	"storagemigration.k8s.io",
}

// IsBuiltIn reports whether kube-apiserver itself serves a group. An API server of another version,
// or with other flags, might not serve every resource of the group, but the objects of such a
// resource stay in etcd. So the absence of a built-in resource never proves that its objects are
// gone.
func IsBuiltIn(group string) bool {
	return !strings.Contains(group, ".") || slices.Contains(builtInGroups, group)
}

// ErrUnprovable means that a retry cannot prove that a resource is gone.
var ErrUnprovable = errors.New("no read can prove that its objects are gone")

var errBuiltIn = fmt.Errorf("its group is built into the API server: %w", ErrUnprovable)

// Proof proves that resources missing from discovery no longer exist. All its reads are consistent.
// It caches results, so create a new Proof for each run of discovery.
type Proof struct {
	reads    dynamic.Interface
	ready    func() error
	services func() (*unstructured.UnstructuredList, error)
}

// NewProof returns a Proof that reads single objects with reads. Its requests end with ctx.
func NewProof(ctx context.Context, client discovery.DiscoveryInterface, reads dynamic.Interface) Proof {
	return Proof{
		reads: reads,
		ready: sync.OnceValue(func() error { return Ready(ctx, client) }),
		services: sync.OnceValues(func() (*unstructured.UnstructuredList, error) {
			return reads.Resource(APIServiceResource).List(ctx, metav1.ListOptions{})
		}),
	}
}

// Gone returns nil if it can prove that a resource that discovery does not show is gone. The proof is
// that the resource is not built in, and that no CustomResourceDefinition or APIService exists that
// could make an API server serve it. The API server deletes the custom objects of a
// CustomResourceDefinition before it removes the CustomResourceDefinition itself. If a retry cannot
// help, the error wraps [ErrUnprovable].
func (p Proof) Gone(ctx context.Context, gr schema.GroupResource) error {
	if IsBuiltIn(gr.Group) {
		return errBuiltIn
	}
	// An API server that has just started does not know its custom resources yet. This is the usual
	// reason for missing resources, and often affects many at once.
	if err := p.ready(); err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("the API server is not ready: %w", err)
	}
	_, err := p.reads.Resource(DefinitionResource).Get(ctx, gr.String(), metav1.GetOptions{})
	switch {
	case err == nil:
		return errors.New("its CustomResourceDefinition exists, but discovery does not list the resource")
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %w", ErrUnprovable, err)
	case !IsObjectNotFound(err):
		return fmt.Errorf("read its CustomResourceDefinition: %w", err)
	}
	services, err := p.services()
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %w", ErrUnprovable, err)
	case apierrors.IsNotFound(err): // an API server without aggregation
		return nil
	case err != nil:
		return fmt.Errorf("list the APIServices of its group: %w", err)
	}
	for _, service := range services.Items {
		if group, _, _ := unstructured.NestedString(service.Object, "spec", "group"); group != gr.Group {
			continue
		}
		_, aggregated, _ := unstructured.NestedMap(service.Object, "spec", "service")
		switch {
		case aggregated:
			return fmt.Errorf("the APIService %s of its group exists, but discovery does not list the resource", service.GetName())
		case service.GetLabels()[AutoRegisteredLabel] == "onstart":
			return errBuiltIn
		}
	}
	return nil
}

// AutoRegisteredLabel marks the APIServices that the API server itself creates. Its value is
// "onstart" for built-in groups and "true" for CustomResourceDefinitions (kube-aggregator,
// autoregister_controller.go).
const AutoRegisteredLabel = "kube-aggregator.kubernetes.io/automanaged"

// IsObjectNotFound reports whether an error of the API server means that an object does not exist.
// While a resource appears or disappears, the API server instead returns that the path does not
// exist. Only an error about an object contains the name of the object.
func IsObjectNotFound(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}

// IsRemoved reports whether the API server no longer serves a resource, which means that its objects
// are gone. last is the catalog of the latest discovery. If last does not contain the resource,
// IsRemoved runs discovery again and then proves the removal. An error means that the removal is
// neither proven nor disproven. See [ErrUnprovable].
func IsRemoved(ctx context.Context, gr schema.GroupResource, last *Catalog, client discovery.DiscoveryInterface, reads dynamic.Interface) (bool, error) {
	if !last.IsMissing(gr) {
		return false, nil
	}
	if IsBuiltIn(gr.Group) {
		return false, errBuiltIn
	}
	now, _, err := Discover(ctx, client, nil)
	if err != nil || !now.IsMissing(gr) {
		return false, err
	}
	if err := NewProof(ctx, client, reads).Gone(ctx, gr); err != nil {
		return false, err
	}
	return true, nil
}
