// Package apistream lists and watches the resources of an API server as text. It splits a response
// into objects while it reads, and passes the text of each object to a function. It decodes no
// object into maps, and never holds the text of a whole list in memory.
//
// The package supports everything that client-go's reflectors need: lists, watches with bookmarks,
// streams that begin with a list (WatchList), and the errors of the API server. It validates every
// byte. A text that is truncated, too long, or malformed ends the list or the watch with an error,
// and the reflector lists again. Such a text never becomes an object.
package apistream
