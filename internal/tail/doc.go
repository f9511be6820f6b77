// Package tail shows events to a person, or to a script, and chooses which.
//
// What it guarantees:
//
//   - One event is one line, whatever is in it. The exception is a diff, which is
//     beneath its event's line, each of its lines with '-', '+', '@' or a space before it.
//   - Nothing on the bus can control the terminal. A Kubernetes name may hold
//     escape sequences (RBAC objects are named by path segments), and a message may
//     have been put on the bus by anyone: what does not print is escaped, in all
//     forms, but for tabs in a diff.
//   - A diff, and a patch, is between two whole states of one object that were on the
//     bus: never between parts, nor between two objects of one name.
//   - [Filter.Subjects] never leaves out what [Filter.Match] takes.
//
// What it does not: it does not ask the cluster, so it cannot resolve a short name
// that a CustomResourceDefinition made up. The state before is the one that was seen
// last: where the bus dropped states in between, the diff spans them, and names the
// versions that it is between.
package tail
