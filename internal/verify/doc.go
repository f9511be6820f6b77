// Package verify checks that the bus is an exact, ordered copy of the cluster. It is the oracle of
// the tests and, as "forwarder verify", a tool for users. It shares with the forwarder only the
// core types of package event, the parsing of resource selectors, the code that opens a bus and
// delivers raw messages, and the filter and the paths of fields in [Options.Shape]. It parses
// events with package wire. It also has its own code to resolve selectors, list, hash, decide, and
// compare, because a check can't find mistakes in code that it shares with the forwarder.
//
// # What it compares
//
// Package replica reads the bus in order, from the oldest message. It keeps the last event of each
// object, and checks whether the events of an object contradict each other. Then verify lists each
// selected resource in the cluster consistently, at a known resourceVersion. It compares every
// object with its last event: whether the object exists, its uid and resourceVersion, and its data
// as JSON, without the fields that an event leaves out.
//
// On Kafka, verify reads all partitions of the event topics, but not the checkpoint topic. All
// events of an object must be in one partition. Some rules concern neighbors, which are two events
// of an object that directly follow each other. If the offsets prove that nothing was removed,
// every violation of such a rule is certain. Otherwise, verify excuses the violations that
// compaction might have caused. An object whose last record is a tombstone has no events.
//
// # Consistency points
//
// At a consistency point of a resource, the bus has every change up to the version of the point. So
// if an object differs now, verify compares its last event with the past of the cluster. It lists
// the past at exactly one version:
//
//   - The version of the point, if the last event is not later than the point.
//   - The version of the event, if the last event is later than the point. Such an event hides the
//     state that the bus had at the point.
//   - The version of the point, if the object has no event or its last event is a delete. The
//     object might have been deleted since then, so it is missing only if it still exists.
//
// An object that differs at that version is wrong, whatever events follow. All other differences
// are changes after the point, whose events might be in flight.
//
// verify uses the last point that every partition of the resource has. It uses no point if the API
// server can't list the version of the point, if the API server's history has been rolled back
// since then, or if the selection of an object can change without a change of the object.
//
// # Events in flight
//
// The bus trails the cluster, and both change while verify reads them. Without a point, a
// difference at one moment proves nothing: an object is wrong only if it stays wrong. verify reads
// each differing object again, first from the cluster and then from the bus up to its end, until
// one of these holds:
//
//   - Both sides show the same state. The object is right.
//   - The bus has reached or passed a state of the cluster, and a comparison of the data succeeded.
//     Either both sides have shown the same state with the same data at some time, or the last
//     event equals the state of the cluster at the version of the event. The object is right, even
//     if it never stops changing.
//   - The bus has not reached or passed a state of the cluster within the settle time. The object
//     is wrong. An object that differs and doesn't change always ends here.
//   - The settle time is over, and the last version that both sides have shown has different
//     data. The object is wrong: data is never in flight without its version.
//   - The settle time is over, and the bus has reached each state of the cluster in turn, but both
//     sides never showed the same state, and the API server can't list the past. The object changes
//     constantly and counts as in motion: the bus keeps up with its versions, but its data isn't
//     compared. The report counts these objects.
//
// A version on the bus that is newer than the cluster's counts only if a later read of the
// cluster shows that version or a newer one. The bus can't know the future.
//
// verify doesn't look for objects that were created after the list.
//
// # What it cannot find
//
//   - verify doesn't see messages that the stream dropped (it keeps a few messages of each object)
//     or that were purged. If such messages can explain a violation of a rule about neighbors,
//     verify excuses the violation. They can't explain it while the first neighbor is still on the
//     stream. Dropped messages can explain it only after the stream has received as many further
//     messages of the object as it keeps.
//   - An object whose first messages the bus lost looks like an object whose first messages the
//     bus dropped: both begin with an event that has a previousversion.
//   - verify might miss snapshot markers that follow the last object event that it reads.
//   - verify compares only the data of each object's last event: of a truncated event the metadata, and
//     of a removal nothing.
//   - Objects that the label and field selectors no longer select, objects in other namespaces,
//     and other resources are out of scope. verify only counts them.
//   - If an object hasn't changed since the preferred API version changed, its last event has the
//     old API version. verify compares the object in that version. If the cluster no longer serves
//     that version, verify compares only uid and resourceVersion. The report counts these objects.
//   - verify compares the values of Secrets only with the redaction key. It always checks that
//     they are hashed.
//   - If the resourceVersions of a resource aren't numbers, which an aggregated API might have,
//     verify compares them only for equality.
//
// If verify can't read something, for example because a list is forbidden, it returns an error
// and never a clean report. It writes nothing to the bus or the cluster.
//
// # Cost
//
// verify reads the bus once from its beginning, and from then on only new messages. For every
// object, it keeps a few hundred bytes, with a digest in place of the data. It holds one page of a
// cluster list at a time.
package verify
