// Package childprocess runs servers as child processes of the present user, for
// tests and the demo: packages controlplane and kafkabroker.
//
// What it guarantees:
//
//   - No process of a [Group] outlives Close, nor this process, even if that ends
//     by kill -9; a Group's folder is removed then too.
//   - A [Port] that is held is given to nobody who asks for any free port, so that
//     a server that was killed gets its own again.
//   - A [Process] ends before Kill and Stop return, whether it hangs, is frozen or
//     has ended before; whoever awaits it learns at once that it ended, and why.
//   - A file that [LockFile] locked is free again when its holder ends, however.
//
// What it does not: whoever kills the reaper, too, keeps what it would have ended,
// and a process that leaves the group, as a daemon does, is not killed with it. A
// port is not kept from those that ask for it by its number and share it in the same
// way; see [ReuseAddr] for systems other than Linux.
package childprocess
