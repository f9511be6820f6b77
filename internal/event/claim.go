package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ClusterClaimed is the type of the marker that binds a cluster name on the bus to one cluster. A
// forwarder publishes it before its first object event, and it stays on the bus.
const ClusterClaimed Type = "io.kuberelay.cluster.claimed"

// Format is the version of the format in which a forwarder writes to a bus: the events and, on
// Kafka, the checkpoint topic. Every new claim records it, and a forwarder refuses a bus whose
// claim has a higher number. Raise Format together with a change that an earlier forwarder would
// misread. A new attribute or field that earlier forwarders can ignore needs no new number.
const Format = 1

// Segments of a claim's partition key.
const (
	clusterToken = "cluster"
	claimedToken = "claimed"
)

// Claim binds a cluster name on the bus to one cluster. The zero value means that the bus
// has no claim.
type Claim struct {
	// UID is the UID of the namespace kube-system, which identifies the cluster.
	UID string

	// Replaces is the UID of the cluster that owned the name before, or "".
	Replaces string

	// Epoch is the first epoch of the cluster's events. It is one higher than the highest epoch of
	// the replaced cluster. All events of that cluster therefore count as earlier, whatever their
	// resourceVersions.
	Epoch uint16

	Claimed time.Time

	// Stream identifies the stream for which the claim was made. On NATS it is the creation time of
	// the stream. It is "" on a bus that keeps its positions when it loses its messages.
	Stream string

	// Format is the [Format] of the forwarder that wrote the claim. In a claim from an earlier
	// release that recorded no format, Format is 0, which means the first format.
	// [Builder.ClusterClaimed] writes the current Format and ignores this field.
	Format int

	// IsRow means that an earlier release wrote the claim in a form that becomes a row in tables
	// built from the topic. The claim must be written again.
	IsRow bool

	// Settings has a digest of each setting that decides the content of the bus, by the name of its
	// variable. The digests show which settings of another process differ, but not their values.
	// Settings is nil in a claim from an earlier release.
	Settings map[string]string

	// Forgotten is the time at which "forwarder forget" deleted all objects of the cluster from the
	// bus, or the zero time. A forgotten name is free: the next forwarder claims it again, even for
	// another cluster.
	Forgotten time.Time

	// Position is the position of the claim on the bus, and the expected position of the next
	// claim. If the last message on the claim's subject or key is not a claim, UID is "", and
	// Position is the position of that message.
	Position uint64
}

// Admits reports whether the cluster with the given UID may use the name while this claim is on the bus.
// If that cluster takes the name over from another cluster, replaces is the UID of the other cluster.
// Otherwise, replaces is "". Admits also returns true if uid is "", the bus has no claim, or the name is
// forgotten.
func (c Claim) Admits(uid, replaces string) bool {
	switch {
	case uid == "", c.UID == "", c.UID == uid, c.UID == replaces, !c.Forgotten.IsZero():
		return true
	}
	return false
}

// Refusal returns an error if a later release wrote the claim in a format that this release doesn't
// know.
func (c Claim) Refusal() error {
	if c.Format <= Format {
		return nil
	}
	return fmt.Errorf("a later release wrote to this bus in format %d, and this release reads formats up to %d, so it could misread the bus", c.Format, Format)
}

// FormatFix tells the user how to fix a [Claim.Refusal].
const FormatFix = "run that release or a later one, or let this release write to another stream or topic (KUBERELAY_NATS_STREAM and KUBERELAY_NATS_SUBJECT_PREFIX, or KUBERELAY_KAFKA_TOPIC)"

// ClusterClaimed builds the marker of a claim. Its expected position is c.Position, which is 0 if
// the bus has no claim. Its id distinguishes it from other claims:
//
//	cluster.claimed.<uid>.<time>
func (b Builder) ClusterClaimed(c Claim) (*Message, error) {
	fail := func(err error) (*Message, error) {
		return nil, fmt.Errorf("build claim of cluster %q: %w", b.Cluster, err)
	}
	switch {
	case b.Cluster == "":
		return fail(errors.New("the cluster has no name"))
	case c.UID == "":
		return fail(errors.New("the cluster has no uid"))
	case c.Claimed.IsZero():
		return fail(errors.New("no time of the claim"))
	}
	claimed := c.Claimed.UTC()
	data, err := EncodeJSON(claimData{
		UID: c.UID, Format: Format, Claimed: claimed, Epoch: c.Epoch, Replaces: c.Replaces, Stream: c.Stream, Settings: c.Settings,
		Forgotten: c.Forgotten.UTC(),
	})
	if err != nil {
		return fail(err)
	}
	id := text(clusterToken + "." + claimedToken + "." + c.UID + "." + session(claimed))
	a := make(attributes, 0, 8)
	a.context(id, b.source(), ClusterClaimed, "/", claimed, ClaimPartitionKey(b.Cluster))
	return &Message{
		ID: id, Marker: true, Attributes: a, Data: data,
		Expected: c.Position, Acked: Acked{UID: c.UID, Epoch: c.Epoch},
	}, nil
}

// ClaimFrom decodes a claim. It leaves Position to the caller. An error has an
// [InvalidReason].
func ClaimFrom(m *Message) (Claim, error) {
	if t := m.Attribute("type"); Type(t) != ClusterClaimed {
		return Claim{}, Invalid(InvalidEvent, fmt.Errorf("read event %.100q: type %q is not a claim", m.ID, t))
	}
	c, err := ParseClaim(m.Data)
	if err != nil {
		return Claim{}, fmt.Errorf("read event %.100q: %w", m.ID, err)
	}
	return c, nil
}

// ParseClaim decodes the data of a claim, as [ClaimFrom] does.
func ParseClaim(encoded []byte) (Claim, error) {
	var data claimData
	switch err := json.Unmarshal(encoded, &data); {
	case err != nil:
		return Claim{}, Invalid(InvalidData, errors.New("data is not a claim"))
	case data.UID == "":
		return Claim{}, Invalid(InvalidData, errors.New("no uid"))
	case data.Epoch > LastEpoch:
		return Claim{}, Invalid(InvalidEpoch, fmt.Errorf("epoch %d is later than the last epoch, %d", data.Epoch, LastEpoch))
	}
	if len(data.Settings) > maxSettings {
		data.Settings = nil
	}
	return Claim{
		UID: data.UID, Format: data.Format, Replaces: data.Replaces, Epoch: data.Epoch, Claimed: data.Claimed, Stream: data.Stream,
		Settings: data.Settings, Forgotten: data.Forgotten,
	}, nil
}

// maxSettings is the maximum number of settings in a claim. ParseClaim ignores all settings of a
// claim that has more than maxSettings. A forwarder writes far fewer.
const maxSettings = 100

type claimData struct {
	UID       string            `json:"uid"`
	Format    int               `json:"format"`
	Claimed   time.Time         `json:"claimed"`
	Epoch     uint16            `json:"epoch"`
	Replaces  string            `json:"replaces,omitempty"`
	Stream    string            `json:"stream,omitempty"`
	Settings  map[string]string `json:"settings,omitempty"`
	Forgotten time.Time         `json:"forgotten,omitzero"`
}

// session returns an identifier that differs between markers of different times.
func session(at time.Time) string { return fmt.Sprintf("%x", at.UnixMicro()) }

// IsClaim reports whether m is the claim of a cluster name. On NATS, the stream stores a claim only
// if the last message on the claim's subject is at the expected position. Other markers have no such
// condition.
func (m *Message) IsClaim() bool {
	return m.Marker && Type(m.Attribute("type")) == ClusterClaimed
}

// ClaimPartitionKey returns the partition key of a cluster's claim. No object has this key, because
// no group is encoded as "_control".
func ClaimPartitionKey(cluster string) string {
	return string(ClusterPartitionKeys(cluster)) + controlToken + "/" + clusterToken + "/" + clusterScopeToken + "/" + claimedToken
}
