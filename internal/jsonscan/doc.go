// Package jsonscan goes through JSON text without decoding it: it finds where values
// begin and end, and says of each byte that it is as JSON must be. It allocates nothing
// but for what is escaped.
//
// What it takes and what it refuses is what encoding/json's Valid does (RFC 8259, and
// no more than 10,000 levels); a fuzz test holds the two together. Strings need not be
// valid UTF-8.
//
// It is ours because no library that checks all of its input is as fast: for an event
// of 12 KB it takes half to two thirds of the time of the next one, and the watch path
// does little else. docs/sizing.md has the comparison.
package jsonscan
