package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ClusterClaimed is the type of the marker that says which cluster a name on the bus
// belongs to. It is there before the first event of an object, and stays.
const ClusterClaimed Type = "io.kuberelay.cluster.claimed"

// Tokens of a claim's subject and partition key.
const (
	clusterToken = "cluster"
	claimedToken = "claimed"
)

// Claim says which cluster a name on the bus belongs to. The zero value stands for a
// bus that does not say.
type Claim struct {
	// UID is that of the namespace kube-system, by which clusters are told apart.
	UID string

	// Replaces is the UID of the cluster that had the name before, "" for none.
	Replaces string

	// Epoch is the first that the cluster's events may have. It is one more than any
	// of the cluster that it replaces: what came from that is earlier, whatever its
	// resourceVersions.
	Epoch uint16

	Claimed time.Time

	// Position is where the bus keeps the claim, or, without a UID, what somebody else
	// has put in its place. The next claim is to follow it.
	Position uint64
}

// ClusterClaimed makes the marker of a claim. It expects that the bus holds nothing in
// the claim's place, or what is at its position. Its id tells it from other claims:
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
	data, err := encode(claimData{UID: c.UID, Claimed: claimed, Epoch: c.Epoch, Replaces: c.Replaces})
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

// ClaimFrom reads a claim, Position left to the caller.
func ClaimFrom(m *Message) (Claim, error) {
	var data claimData
	switch err := json.Unmarshal(m.Data, &data); {
	case Type(m.Attribute("type")) != ClusterClaimed:
		return Claim{}, fmt.Errorf("read event %q: type %q is not of a claim", m.ID, m.Attribute("type"))
	case err != nil:
		return Claim{}, fmt.Errorf("read event %q: data is not of a claim", m.ID)
	case data.UID == "":
		return Claim{}, fmt.Errorf("read event %q: no uid", m.ID)
	}
	return Claim{UID: data.UID, Replaces: data.Replaces, Epoch: data.Epoch, Claimed: data.Claimed}, nil
}

// claimData is the data of a claim.
type claimData struct {
	UID      string    `json:"uid"`
	Claimed  time.Time `json:"claimed"`
	Epoch    uint16    `json:"epoch"`
	Replaces string    `json:"replaces,omitempty"`
}

// session tells markers of different times apart.
func session(at time.Time) string { return fmt.Sprintf("%x", at.UnixMicro()) }

// IsClaim tells whether m is the claim of a name, which unlike other markers is put on
// the bus only upon what it expects.
func (m *Message) IsClaim() bool {
	return m.Marker && Type(m.Attribute("type")) == ClusterClaimed
}

// Subject is the NATS subject of the message.
func (m *Message) Subject(prefix, cluster string) string {
	switch {
	case m.IsClaim():
		return ClaimSubject(prefix, cluster)
	case m.Marker:
		return MarkerSubject(prefix, cluster, m.Key.GroupResource())
	}
	return Subject(prefix, cluster, m.Key)
}

// ClaimSubject is the NATS subject of a cluster's claim:
//
//	<prefix>.<cluster>._control.cluster._.claimed
//
// It is no object's subject.
func ClaimSubject(prefix, cluster string) string {
	b := appendToken([]byte(prefix+"."), cluster)
	return string(b) + "." + controlToken + "." + clusterToken + "." + clusterScopeToken + "." + claimedToken
}

// ClaimPartitionKey is the partition key of a cluster's claim. It is no object's, as no
// group is written "_control".
func ClaimPartitionKey(cluster string) string {
	return string(ClusterPartitionKeys(cluster)) + controlToken + "/" + clusterToken + "/" + clusterScopeToken + "/" + claimedToken
}
