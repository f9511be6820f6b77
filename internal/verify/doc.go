// Package verify says whether the bus is what it promises to be: an exact, ordered
// copy of the cluster. It is the oracle of the tests and, as «forwarder verify», a
// tool for users. It shares nothing with the forwarder but the nouns of package
// event and the reading side of the bus: it resolves selectors, lists, decides and
// compares by itself, or it would prove nothing.
//
// # What is looked at
//
// The stream, from its oldest message on, in order: what each object's last event
// says, and whether its events contradict each other (see history for the rules).
// Then the cluster: each selected resource is listed consistently, at a
// resourceVersion that is known, and every object compared with its last event:
// whether it is there, its uid and resourceVersion, and its data, as JSON, less
// what an event leaves out.
//
// On Kafka it is the event topics, all partitions of them; the checkpoint topic is not
// looked at. An object's events must be in one partition. Where the offsets show that
// nothing was removed, every rule about neighbours holds for certain; elsewhere
// compaction excuses what it may have caused. An object whose last record is a
// tombstone has no events.
//
// # What is in flight
//
// The bus trails the cluster, and both change while they are read. So a difference
// at one moment means nothing, and it is never enough to see one: an object is wrong
// if it stays wrong. Each object that differs is looked at again, the cluster first
// and then the bus up to the end that it has by then, until one of these holds:
//
//   - Both show the same state. It is right.
//   - Some state was seen on both sides, with the same data, and the bus has since
//     come to a state that the cluster had, or past it. It is right, though it
//     never stood still.
//   - The bus has not come to a state of the cluster, nor past it, for the settle
//     time. It is wrong. An object that stands still and differs always ends here.
//   - The settle time has gone by, and the last version that was seen on both sides
//     had other data. It is wrong: no data is in flight without its version.
//   - The settle time has gone by, and the bus came to each state of the cluster in
//     turn, but never was one seen on both sides. The object changes all the time.
//     It counts as in motion: the bus follows its versions, its data was not
//     compared. The report says how many there are.
//
// A version on the bus that the cluster has not is only believed if a look at the
// cluster after that shows the same or a later one: the bus cannot know the future.
//
// Objects that came into being after the list was taken are not looked for.
//
// # What it cannot tell
//
//   - Of messages that the stream has dropped (it keeps some of each object) or
//     that were purged it knows nothing. Where a rule about neighbours is broken and
//     dropped messages are a possible reason, they are taken for the reason; but not
//     while the first of the two is still on the stream, nor before as many messages
//     follow as the stream keeps.
//   - An object whose first messages the bus has lost is not told from one whose
//     first messages it has dropped: both begin with an event that has a
//     previousversion.
//   - Snapshot markers that come after the last event of any object may be left
//     unread.
//   - Of the data of events only the last of each object is compared.
//   - What labels and fields do not select any more, what is in other namespaces and
//     what is of other resources is out of scope and only counted.
//   - An object that has not changed since another version of the API came to be
//     preferred has its last event in the old one. It is compared in that version; where
//     the cluster does not serve it any more, by uid and resourceVersion only. The
//     report says how many there are.
//   - The values of Secrets are compared only with the redaction key; that they are
//     hashed is checked always.
//   - Resources whose resourceVersions are no numbers, as an aggregated API may
//     have, are compared for equality only.
//
// Where it could not look, say because a list was forbidden, it returns an error
// and never a clean report. It writes nothing to the bus or the cluster.
//
// # What it costs
//
// The stream is read once, whole, and from then on only what comes. Of every object
// some hundred bytes are kept, with a digest in place of the data; of the cluster a
// page of a list at a time.
package verify
