// Package reload makes the decisions of a load during a session: whether the topics still hold what
// the session wrote, what a checkpoint entry tells the caller, and what to do about the records of
// other writers. Package takeover makes the decisions of a new session.
//
// Like takeover, it performs no I/O and uses no clock, goroutines, or locks. The caller passes in
// what it read, and the package returns what to read next, what is known, and whether the session
// must end.
//
// It guarantees that a load yields no event that the bus has lost, and that it trusts no entry of
// another writer over the positions that the session knows.
package reload
