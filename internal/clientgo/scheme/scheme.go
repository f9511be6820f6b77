// Package scheme stands in for client-go's, with the few types that the forwarder sends
// to the API server or reads from it as such: leases, reviews of what we may do, and
// those of meta/v1, of errors and of discovery. All others are untyped.
package scheme

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// These are read-only.
var (
	Scheme         = newScheme()
	Codecs         = serializer.NewCodecFactory(Scheme)
	ParameterCodec = runtime.NewParameterCodec(Scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(authorizationv1.AddToScheme(s))
	utilruntime.Must(coordinationv1.AddToScheme(s))
	return s
}
