// Package verify checks that the bus is an exact, ordered copy of the cluster. It is the oracle
// of the tests and, as "forwarder verify", a tool for users. It shares with the forwarder only
// the nouns of package event, the parsing of resource selectors, and the code that opens a bus
// and delivers raw messages. It parses events with package wire, and resolves selectors, lists,
// hashes, decides and compares in code of its own. A check that shared this code could not find
// its mistakes.
//
// # What it compares
//
// Package replica reads the bus in order, from the oldest message: the last event of each
// object, and whether the events of an object contradict each other. Then verify reads the
// cluster: it lists each selected resource consistently, at a known resourceVersion, and
// compares every object with its last event: whether it exists, its uid and resourceVersion, and
// its data as JSON, without the fields that an event leaves out.
//
// On Kafka verify reads all partitions of the event topics, and not the checkpoint topic. The
// events of an object must be in one partition. Where the offsets prove that nothing was
// removed, every violation of a rule about neighbors is certain. Elsewhere verify excuses what
// compaction can have caused. An object whose last record is a tombstone has no events.
//
// # Consistency points
//
// At a consistency point of a resource, the bus has every change up to the version of the point.
// So verify compares an object that differs now with the past of the cluster, by a list at
// exactly one version:
//
//   - The last event is not later than the point: at the version of the point.
//   - The last event is later: at the version of the event. A later state on the bus hides what
//     was there at the point.
//   - There is no event, or a delete: at the version of the point. The object may have gone since,
//     so it is missing only if it still exists.
//
// An object that differs there is wrong, whatever follows. The rest of the differences are changes
// after the point, which may be in flight.
//
// verify uses the last point that every partition of the resource has. It does without a point if
// the API server can't list its version, if the history of the API server went back since, and if
// the selection of an object can change without the object.
//
// # Events in flight
//
// The bus trails the cluster, and both change while verify reads them. Where no point decides,
// one difference at one moment means nothing: an object is wrong if it stays wrong. verify looks
// again at each object that differs, first in the cluster and then on the bus up to its end, until
// one of these holds:
//
//   - Both sides show the same state. The object is right.
//   - Both sides have shown the same state with the same data at some time, or the last event is
//     the state of the cluster at the version of the event, and the bus has reached or passed a
//     state of the cluster. The object is right, although it never stood still.
//   - The bus has not reached or passed a state of the cluster within the settle time. The
//     object is wrong. An object that doesn't change and differs always ends here.
//   - The settle time is over, and the last version that both sides have shown has different
//     data. The object is wrong: data is never in flight without its version.
//   - The settle time is over, and the bus has reached each state of the cluster in turn, but
//     both sides never showed the same state, and the API server can't list the past. The object
//     changes all the time and counts as in motion: the bus follows its versions, and its data
//     isn't compared. The report has the number of these objects.
//
// A version on the bus that is newer than the cluster's counts only if a later read of the
// cluster shows that version or a newer one. The bus can't know the future.
//
// verify doesn't look for objects that were created after the list.
//
// # What it cannot find
//
//   - verify knows nothing of messages that the stream dropped (it keeps a few of each object) or
//     that were purged. If they can explain a violation of a rule about neighbors, they excuse
//     it. They don't while the first of the two messages is still on the stream, nor before as
//     many messages follow as the stream keeps.
//   - An object whose first messages the bus lost looks like an object whose first messages the
//     bus dropped: both begin with an event that has a previousversion.
//   - Snapshot markers after the last event of any object may stay unread.
//   - Only the data of the last event of each object is compared.
//   - Objects that the label and field selectors no longer select, objects in other namespaces,
//     and other resources are out of scope. verify only counts them.
//   - The last event of an object that hasn't changed since the preferred version of the API
//     changed is in the old version. verify compares it in that version. If the cluster no longer
//     serves it, verify compares uid and resourceVersion only. The report has the number of these
//     objects.
//   - verify compares the values of Secrets only with the redaction key. It always checks that
//     they are hashed.
//   - If the resourceVersions of a resource aren't numbers, as an aggregated API may have them,
//     verify compares them only for equality.
//
// If verify can't read something, for example because a list is forbidden, it returns an error
// and never a clean report. It writes nothing to the bus or the cluster.
//
// # Cost
//
// verify reads the bus once from its beginning, and from then on only new messages. It keeps a
// few hundred bytes of every object, with a digest in place of the data, and one page of a list
// of the cluster at a time.
package verify
