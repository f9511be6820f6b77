// Package revision compares the resource versions of a cluster. It is a separate package, because
// package replica also builds with versions of apimachinery that can't compare resource versions.
package revision

import "k8s.io/apimachinery/pkg/util/resourceversion"

// IsEarlier reports whether a version is known to be earlier than another version of the same
// resource and epoch. It returns false for versions that cannot be compared, such as those that an
// aggregated API server might serve.
func IsEarlier(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// IsUpTo reports whether a version is known to be at most another version of the same resource and
// epoch. It returns false for versions that cannot be compared.
func IsUpTo(version, limit string) bool {
	order, err := resourceversion.CompareResourceVersion(version, limit)
	return err == nil && order <= 0
}
