// Package revision compares the resource versions of a cluster. It is apart from package event,
// because package replica also works with an apimachinery that can't compare them.
package revision

import "k8s.io/apimachinery/pkg/util/resourceversion"

// IsEarlier reports whether a version of an object is known to be before another one of the
// same resource and epoch. An aggregated API server may serve versions that cannot be compared.
func IsEarlier(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
