// Package failpoint lets tests of the whole forwarder kill the process at a named
// point. This requires the build tag failpoints. Without the tag, Hit is an empty
// function, and the compiler removes the calls.
//
// With the tag, the environment variable FAILPOINT names the point and a count. For
// example, FAILPOINT=after-ack:37 kills the process, like kill -9, when it reaches
// after-ack for the 37th time. The variable has no KUBERELAY_ prefix because no user
// sets it.
package failpoint
