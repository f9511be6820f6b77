// Package tail selects and prints events and the current state of the bus, for people and scripts.
//
// It guarantees:
//
//   - Each event is one line, whatever its content. A diff adds lines below the line of the event.
//     Each of them begins with '-', '+', '@', or a space.
//   - Nothing on the bus can control the terminal. The name of an RBAC object is a path segment, so
//     it can contain escape sequences, and anyone might have put a message on the bus. All output
//     formats escape unprintable characters, except tabs and line breaks in a diff or in YAML.
//   - A diff or a patch compares two whole states of one object that were on the bus. It never
//     compares partial states, or two objects with the same name.
//   - [Filter.Subjects] includes everything that [Filter.Match] accepts.
//
// The package does not read the cluster, so it can't resolve a short name from a
// CustomResourceDefinition. The previous state is the last one that tail has seen. If the bus
// dropped states in between, the diff spans them and shows the two versions that it compares.
package tail
