package replica

import (
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TruncatedAnnotation is "true" on an object that is too large for the bus. Such an object has only
// apiVersion, kind, and metadata. [metav1.PartialObjectMetadata] objects never have the annotation.
const TruncatedAnnotation = event.TruncatedAnnotation

// decoder decodes objects into one Go type.
type decoder struct {
	gvr  schema.GroupVersionResource
	of   reflect.Type            // the struct type
	kind schema.GroupVersionKind // set by empty; from the prototype or a decoded object, preferably in gvr's version
}

// newDecoder returns a decoder into the type of the prototype, or into unstructured objects if the
// prototype is nil. It returns an error if the prototype is not a pointer to a struct with metadata.
func newDecoder(gvr schema.GroupVersionResource, prototype runtime.Object) (*decoder, error) {
	if prototype == nil {
		prototype = &unstructured.Unstructured{}
	}
	t := reflect.TypeOf(prototype)
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("Options.Object is %T: use a pointer to a struct, such as &corev1.Pod{}", prototype)
	}
	d := &decoder{gvr: gvr, of: t.Elem(), kind: prototype.GetObjectKind().GroupVersionKind()}
	if _, err := meta.Accessor(d.empty()); err != nil {
		return nil, fmt.Errorf("Options.Object is %T, which has no metadata: %w", prototype, err)
	}
	return d, nil
}

// empty returns an object without a name. It sets the kind of an unstructured object, because an
// informer can expect one kind.
func (d *decoder) empty() runtime.Object {
	object := reflect.New(d.of).Interface().(runtime.Object)
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.Object = map[string]any{}
	}
	if isGeneric(object) && !d.kind.Empty() {
		object.GetObjectKind().SetGroupVersionKind(d.kind)
	}
	return object
}

// named returns an object that has only a namespace, name, and UID.
func (d *decoder) named(k event.Key, uid types.UID) runtime.Object {
	object := d.empty()
	m := metaOf(object)
	m.SetNamespace(k.Namespace)
	m.SetName(k.Name)
	m.SetUID(uid)
	return object
}

// decode returns the object of a change, and its metadata.
func (d *decoder) decode(c change) (runtime.Object, metav1.Object, error) {
	object := d.empty()
	var err error
	if u, ok := object.(*unstructured.Unstructured); ok {
		err = u.UnmarshalJSON(c.data)
	} else {
		err = json.Unmarshal(c.data, object)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("decode the object: %w", err)
	}
	m, kind := metaOf(object), object.GetObjectKind().GroupVersionKind()
	switch {
	case m.GetName() != c.key.Name || m.GetNamespace() != c.key.Namespace:
		return nil, nil, fmt.Errorf("the object has the name %q and namespace %q", m.GetName(), m.GetNamespace())
	case !isGeneric(object) && kind.GroupVersion() != d.gvr.GroupVersion():
		return nil, nil, fmt.Errorf("the bus has the object in version %s, not in %s: an object keeps its version on the bus until it changes; "+
			"set Options.Object to nil or &metav1.PartialObjectMetadata{}, which accept all versions, or, if all objects have the same version, use the Go type of that version",
			kind.GroupVersion(), d.gvr.GroupVersion())
	}
	if d.kind.Empty() || kind.GroupVersion() == d.gvr.GroupVersion() {
		d.kind = kind
	}
	if !isGeneric(object) { // typed clients return objects without a kind
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	if _, only := object.(*metav1.PartialObjectMetadata); c.truncated && !only {
		annotations := maps.Clone(m.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[TruncatedAnnotation] = "true"
		m.SetAnnotations(annotations)
	}
	return object, m, nil
}

// isGeneric reports whether the Go type of an object can hold any kind.
func isGeneric(object runtime.Object) bool {
	switch object.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		return true
	}
	return false
}
