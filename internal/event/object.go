package event

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is the form in which a Kubernetes object is cached and published: the
// little metadata that a decision needs, and the object itself as JSON.
//
// It satisfies [metav1.ObjectMetaAccessor] and [runtime.Object], so client-go's
// indexers, namespace index and handlers take it in place of an unstructured
// one. It is read-only once it is in an indexer.
type Object struct {
	APIVersion, Kind string
	Namespace, Name  string
	UID              types.UID
	ResourceVersion  string

	Body Body

	// Digest is of what is sent, where that may not be the whole object; Cut tells that it
	// is not.
	Digest Digest
	Cut    bool

	// Unselected: it exists and is not to be sent, by its content. It has no Body.
	Unselected bool

	// References are those that are followed; nil where none are.
	References []Reference
}

var (
	_ runtime.Object            = (*Object)(nil)
	_ metav1.ObjectMetaAccessor = (*Object)(nil)
)

// GetObjectMeta gives the metadata that client-go's caches ask for: name,
// namespace, UID and resourceVersion. Everything else is in Body only.
func (o *Object) GetObjectMeta() metav1.Object { return objectMeta{unknown, o} }

// objectMeta is made several times for each event of a watch: it is as small as can be.
type objectMeta struct {
	metav1.Object // everything else
	of            *Object
}

// unknown is never changed: nobody changes what is in an indexer.
var unknown metav1.Object = &metav1.ObjectMeta{}

func (m objectMeta) GetNamespace() string       { return m.of.Namespace }
func (m objectMeta) GetName() string            { return m.of.Name }
func (m objectMeta) GetUID() types.UID          { return m.of.UID }
func (m objectMeta) GetResourceVersion() string { return m.of.ResourceVersion }

// GetObjectKind is part of [runtime.Object].
func (o *Object) GetObjectKind() schema.ObjectKind {
	return &metav1.TypeMeta{APIVersion: o.APIVersion, Kind: o.Kind}
}

// DeepCopyObject is part of [runtime.Object]. What an Object refers to is never changed.
func (o *Object) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}
