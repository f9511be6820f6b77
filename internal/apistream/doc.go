// Package apistream lists and watches the resources of an API server as text. It splits a
// response into objects while it reads, and passes the text of each object to a function.
// It decodes nothing into maps, and never holds a whole list in memory.
//
// It offers client-go's reflectors the same as their own clients: lists, watches with
// bookmarks, streams that begin with a list (WatchList) and the errors of the API server.
// It validates every byte. A text that is truncated, too long or not in the expected form
// ends the list or the watch with an error, and the reflector lists again. Such a text
// never becomes an object.
package apistream
