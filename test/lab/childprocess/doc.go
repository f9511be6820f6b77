// Package childprocess runs servers as child processes of the present user, for tests and the
// demo: packages controlplane and kafkabroker.
//
// It guarantees:
//
//   - No process of a [Group] outlives Close, nor this process, even if this process is killed
//     with SIGKILL. The folder of the Group is removed too.
//   - Nobody who asks for a free port gets a [Port] that is held, so a server can be killed and
//     started again on the same port.
//   - Kill and Stop return after the [Process] has ended, whether it hangs or is frozen. Await
//     returns as soon as the process ends, with the reason.
//   - A file that [LockFile] locked is unlocked when its holder ends, for any reason.
//
// It doesn't guarantee:
//
//   - If somebody kills the reaper too, its processes stay.
//   - A process that leaves the group, as a daemon does, isn't killed.
//   - A port isn't protected from a process that asks for it by number and shares it in the same
//     way. See [ReuseAddr] for systems other than Linux.
package childprocess
