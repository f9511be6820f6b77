package event

import "k8s.io/apimachinery/pkg/runtime/schema"

// Reference is what a field of one object says of another.
type Reference struct {
	Group, Kind     string
	Namespace, Name string // Namespace is "" where the field has none
	UID             string // "" where the field has none
	Controller      bool   // it is the owner that controls the object
}

// GroupKind is the type that it refers to, without a version.
func (r Reference) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// Owner is the controller at the top of a chain of owners: of a pod, the Deployment.
type Owner struct{ Kind, Name string }
