package event

import "k8s.io/apimachinery/pkg/runtime/schema"

// Reference is a reference from a field of one object to another object.
type Reference struct {
	Group, Kind     string
	Namespace, Name string // Namespace is "" if the field has none
	UID             string // "" if the field has none
	Controller      bool   // it refers to the controller of the object
}

// GroupKind returns the referenced type, without a version.
func (r Reference) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// Owner is the controller at the top of a chain of owners, such as the Deployment of a pod.
type Owner struct{ Kind, Name string }
