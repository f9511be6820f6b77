// Package jsonscan scans JSON text without decoding it: it finds the boundaries of values
// and validates every byte. It allocates memory only to unescape strings.
//
// It accepts exactly the texts that encoding/json.Valid accepts (RFC 8259, up to 10,000
// nesting levels), which a fuzz test checks. Strings need not be valid UTF-8.
//
// The package exists because no library that validates all of its input is as fast. For an event of
// 12 KB, it takes half to two thirds of the time of the next fastest library, and scanning is most
// of the work for a watch event. See docs/sizing.md for the comparison.
package jsonscan
