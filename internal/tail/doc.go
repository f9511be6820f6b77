// Package tail shows events to a person, or to a script, and chooses which.
//
// What it guarantees:
//
//   - One event is one line, whatever is in it.
//   - Nothing on the bus can control the terminal. A Kubernetes name may hold
//     escape sequences (RBAC objects are named by path segments), and a message may
//     have been put on the bus by anyone: what does not print is escaped, in both
//     forms.
//   - [Filter.Subjects] never leaves out what [Filter.Match] takes.
//
// What it does not: it does not ask the cluster, so it cannot resolve a short name
// that a CustomResourceDefinition made up.
package tail
