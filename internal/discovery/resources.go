package discovery

import "k8s.io/apimachinery/pkg/runtime/schema"

// The resources whose objects define which resources and namespaces exist.
var (
	NamespaceResource  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	DefinitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	APIServiceResource = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)
