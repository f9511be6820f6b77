// Package tail prints events and the present state of the bus for a person or a script, and selects
// them.
//
// It guarantees:
//
//   - One event is one line, whatever its content. The exception is a diff: its lines follow the
//     line of the event, each with '-', '+', '@' or a space at the beginning.
//   - Nothing on the bus can control the terminal. A Kubernetes name can contain escape sequences
//     (RBAC objects are named by path segments), and anyone may have put a message on the bus.
//     All forms of output escape what does not print, except tabs in a diff.
//   - A diff or a patch is between two whole states of one object that were on the bus: never
//     between partial states, nor between two objects of one name.
//   - [Filter.Subjects] includes everything that [Filter.Match] accepts.
//
// It does not read the cluster, so it can't resolve a short name from a CustomResourceDefinition.
// The previous state is the last one that tail has seen. If the bus dropped states in between, the
// diff spans them, and names its two versions.
package tail
