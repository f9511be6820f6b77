package event

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestClusterClaimed(t *testing.T) {
	at := time.Date(2026, 3, 1, 15, 4, 5, 678_900_000, time.UTC)
	claim := Claim{UID: "uid-1", Replaces: "uid-0", Epoch: 3, Claimed: at, Stream: "2026-02-28T00:00:00Z", Position: 17}
	claim.Settings, claim.Forgotten = map[string]string{"KUBERELAY_B": "02", "KUBERELAY_A": "01"}, at.Add(time.Hour)
	m, err := Builder{Cluster: "prod/1"}.ClusterClaimed(claim)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"id": m.ID, "source": "/kubernetes/prod%2F1", "specversion": "1.0", "type": "io.kuberelay.cluster.claimed",
		"subject": "/", "time": "2026-03-01T15:04:05.6789Z", "datacontenttype": "application/json",
		"partitionkey": "prod%2F1/_control/cluster/_/claimed",
	}
	for _, a := range m.Attributes {
		if want[a.Name] != a.Value {
			t.Errorf("%s is %q, want %q", a.Name, a.Value, want[a.Name])
		}
		delete(want, a.Name)
	}
	if len(want) > 0 {
		t.Errorf("without %v", want)
	}
	if got, want := string(m.Data), `{"uid":"uid-1","format":1,"claimed":"2026-03-01T15:04:05.6789Z","epoch":3,"replaces":"uid-0","stream":"2026-02-28T00:00:00Z","settings":{"KUBERELAY_A":"01","KUBERELAY_B":"02"},"forgotten":"2026-03-01T16:04:05.6789Z"}`; got != want {
		t.Errorf("data %s, want %s", got, want)
	}
	if !m.Marker || !m.IsClaim() || m.Expected != 17 || m.Key != (Key{}) {
		t.Errorf("got %+v", m)
	}
	claim.Position, claim.Format = 0, Format
	if got, err := ClaimFrom(m); err != nil || !reflect.DeepEqual(got, claim) {
		t.Errorf("read back as %+v, %v", got, err)
	}
	claim.Claimed = at.Add(time.Millisecond)
	if later, err := (Builder{Cluster: "prod/1"}).ClusterClaimed(claim); err != nil || later.ID == m.ID {
		t.Errorf("a later claim has the id %s too (%v)", later.ID, err)
	}
}

// TestClaimOfAnEarlierRelease verifies that this release reads a claim of an earlier release, which
// lacks some fields, and a claim of a later release, whose unknown fields it ignores.
func TestClaimOfAnEarlierRelease(t *testing.T) {
	for _, data := range []string{
		`{"uid":"u","claimed":"2026-03-01T15:04:05Z","epoch":2}`,
		`{"uid":"u","claimed":"2026-03-01T15:04:05Z","epoch":2,"settings":null,"later":{"a":[1]}}`,
	} {
		want := Claim{UID: "u", Epoch: 2, Claimed: time.Date(2026, 3, 1, 15, 4, 5, 0, time.UTC)}
		m := &Message{ID: "1", Attributes: []Attribute{{"type", string(ClusterClaimed)}}, Data: json.RawMessage(data)}
		got, err := ClaimFrom(m)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", data, got, err)
		}
		if !want.Admits("u", "") || want.Admits("v", "") {
			t.Errorf("%+v", want)
		}
		want.Forgotten = want.Claimed
		if !want.Admits("v", "") {
			t.Error("the name of a forgotten cluster is refused")
		}
	}
	var many []string
	for n := range 2 * maxSettings {
		many = append(many, fmt.Sprintf(`"%d":""`, n))
	}
	m := &Message{ID: "1", Attributes: []Attribute{{"type", string(ClusterClaimed)}}, Data: []byte(`{"uid":"u","settings":{` + strings.Join(many, ",") + `}}`)}
	if c, err := ClaimFrom(m); err != nil || c.Settings != nil {
		t.Errorf("got %d settings, %v", len(c.Settings), err)
	}
}

func TestClusterClaimedRefuses(t *testing.T) {
	at := time.Unix(1, 0)
	for name, c := range map[string]struct {
		cluster string
		claim   Claim
	}{
		"no name": {"", Claim{UID: "u", Claimed: at}},
		"no uid":  {"c", Claim{Claimed: at}},
		"no time": {"c", Claim{UID: "u"}},
	} {
		if m, err := (Builder{Cluster: c.cluster}).ClusterClaimed(c.claim); err == nil {
			t.Errorf("%s: got %+v", name, m)
		}
	}
}

func TestClaimFromRefuses(t *testing.T) {
	of := func(typ Type, data string) *Message {
		return &Message{ID: "1", Attributes: []Attribute{{"type", string(typ)}}, Data: json.RawMessage(data)}
	}
	for name, m := range map[string]*Message{
		"another type": of(WriterStarted, `{"uid":"u"}`),
		"no JSON":      of(ClusterClaimed, `u`),
		"no uid":       of(ClusterClaimed, `{"epoch":1}`),
		"no epoch":     of(ClusterClaimed, `{"uid":"u","epoch":-1}`),
		"after epochs": of(ClusterClaimed, `{"uid":"u","epoch":65535}`),
	} {
		if c, err := ClaimFrom(m); err == nil {
			t.Errorf("%s: got %+v", name, c)
		}
	}
}
