package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// consistencyFrom returns the time from which the age of the copy counts. It is the time of the
// last known consistent state or, before the first consistency point, the time of the first sync.
// It is nil if no consistency point is expected.
func (r Resource) consistencyFrom() *time.Time { return cmp.Or(r.ConsistentAsOf, r.NoPointSince) }

// failures splits the errors of the resource's lists and watches. denied is the resource with the errors
// of denied access, and failing is the resource with all other errors. A result without errors is the
// zero value.
func (r Resource) failures() (denied, failing Resource) {
	if len(r.NamespaceErrors) == 0 {
		switch {
		case r.Reason == "forbidden":
			return r, Resource{}
		case r.State == "degraded":
			return Resource{}, r
		}
		return Resource{}, Resource{}
	}
	for _, e := range r.NamespaceErrors {
		to := &failing
		if e.Reason == "forbidden" {
			to = &denied
		}
		text := e.Namespace + ": " + e.Message
		if to.Name == "" {
			*to = r
			to.Since, to.WatchError = &e.Since, &Error{text, e.Since}
			continue
		}
		to.WatchError.Message += "; " + text
		if e.Since.Before(*to.Since) {
			to.Since = &e.Since
		}
	}
	return denied, failing
}

// isPartlyForbidden reports whether access is allowed in at least one of the namespaces that have
// their own watch.
func (r Resource) isPartlyForbidden() bool { return r.ForbiddenNamespaces < r.Namespaces }

// inNamespaces describes in how many namespaces access to the resources is denied. It returns "" if
// access to one of the resources is denied in all namespaces.
func inNamespaces(all []Resource) string {
	words := ""
	for _, r := range all {
		is := fmt.Sprintf("%d of %s", r.ForbiddenNamespaces, counted(r.Namespaces, "namespace"))
		switch {
		case !r.isPartlyForbidden():
			return ""
		case words == "":
			words = is
		case words != is:
			words = "some namespaces"
		}
	}
	return words
}

// firstSince returns when the first of the resources entered its state, or nil if that is unknown.
func firstSince(all []Resource) (first *time.Time) {
	for _, r := range all {
		if r.Since != nil && (first == nil || r.Since.Before(*first)) {
			first = r.Since
		}
	}
	return first
}

// named lists the first three resources, each with its error, and counts the others.
func named(all []Resource) string {
	var names []string
	for _, r := range all {
		name := r.Name
		if r.WatchError != nil {
			name += " (" + r.WatchError.Message + ")"
		}
		names = append(names, name)
	}
	return listed(names)
}

// listed lists the first three names, and counts the others.
func listed(names []string) string {
	const show = 3
	if more := len(names) - show; more > 0 {
		names = append(slices.Clone(names[:show]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
