// Package childprocess runs servers as child processes of the current user, for tests and the demo.
// Packages controlplane and kafkabroker use it.
//
// It guarantees:
//
//   - No process of a [Group] outlives Close or this process, even if this process is killed
//     with SIGKILL. The directory of the Group is removed too.
//   - A process that asks for any free port never receives a [Port] that is held. A server can be
//     killed and started again on the same port.
//   - Kill and Stop return after the [Process] has ended, even if it hangs or is frozen. Await
//     returns the reason as soon as the process ends.
//   - A file that [LockFile] locked is unlocked when its holder ends, for any reason.
//
// It doesn't guarantee:
//
//   - If the reaper is killed too, its processes stay.
//   - A process that leaves the group, as a daemon does, isn't killed.
//   - A port isn't protected from a process that asks for it by number and shares it in the same
//     way. See [ReuseAddr] for systems other than Linux.
package childprocess
