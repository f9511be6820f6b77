// Package apistream lists and watches the resources of an API server as text: what it
// answers is split into objects while it is read, and each is handed to a function that
// takes from it what it needs. Nothing is decoded into maps, and no list is ever in
// memory as a whole.
//
// It gives client-go's reflectors what their own clients do: lists, and watches with
// bookmarks, a stream that begins with a list (WatchList) and the errors of the API
// server. What it reads is checked to the last byte. A text that is cut off, too long or
// not of the expected form ends the list or the watch with an error, after which the
// reflector lists again: it never becomes an object.
package apistream
