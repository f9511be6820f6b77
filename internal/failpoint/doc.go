// Package failpoint lets tests of the whole forwarder die, or be wrong, at a
// chosen place. It exists only with the build tag failpoints; without it every
// function here is empty and the compiler removes the calls.
//
// With the tag two environment variables say what to do; they have no KUBERELAY_
// prefix because no user sets them:
//
//	FAILPOINT=after-ack:37    kill this process, as kill -9 does, when it comes to
//	                          after-ack for the 37th time
//	PLANTED_BUG=random-ids    behave as if the code had this bug, to show that the
//	                          tests would notice
package failpoint
