// Package clientgo has no code of its own. Below it is what the forwarder needs of
// client-go and cannot import from there without every type of the Kubernetes API, which
// would make the binary half again as large: client-go's discovery, restmapper and
// leaderelection import all of them, for the errors of an answer or for what is not
// called here.
//
// discovery, restmapper, leaderelection and resourcelock are client-go's own text, less
// what is not called. «make generate» copies it from the version in go.mod (hack/clientgo)
// and «make check-generated» fails if it differs, so they come along with an upgrade and
// count as a library: whatever may import client-go may import them. scheme and typed are
// written by hand.
package clientgo
