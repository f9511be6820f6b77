package event

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func TestNextEpoch(t *testing.T) {
	for of, want := range map[uint16]uint16{0: 1, LastEpoch - 1: LastEpoch, LastEpoch: LastEpoch, LastEpoch + 1: LastEpoch, 65535: LastEpoch} {
		if got := NextEpoch(of); got != want {
			t.Errorf("after %d comes %d, want %d", of, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		acked Acked
		want  InvalidReason // "" for valid
	}{
		"valid":                      {Acked{UID: "u", Epoch: LastEpoch, Deleted: true, Deselected: true}, ""},
		"no uid":                     {Acked{}, InvalidAttribute},
		"the longest version":        {Acked{UID: strings.Repeat("u", maxVersion-1), ResourceVersion: "1"}, ""},
		"a longer version":           {Acked{UID: strings.Repeat("u", maxVersion-1), ResourceVersion: "12"}, InvalidAttribute},
		"after the last epoch":       {Acked{UID: "u", Epoch: LastEpoch + 1}, InvalidEpoch},
		"deselected and not removed": {Acked{UID: "u", Deselected: true}, InvalidAttribute},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.acked.Validate()
			if (err == nil) != (c.want == "") || err != nil && ReasonOf(err) != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// FuzzAckedFrom verifies that AckedFrom accepts only attributes that are within bounds, and that an
// accepted sequence has the same text when written again.
func FuzzAckedFrom(f *testing.F) {
	f.Add("io.kuberelay.object.created", "u", "7", "0000.00000000000000000007", "")
	f.Add("io.kuberelay.object.deselected", "u%", "", "9999.", "0123456789abcdef")
	f.Add("io.kuberelay.object.deleted", "x", "0", "65535.0", "")
	f.Add("io.kuberelay.object.updated", "x", "99999999999999999999999", "10000.99999999999999999999999", "")
	f.Add("io.kuberelay.object.updated", "x", "-1", "-001.-1", "zz")
	f.Fuzz(func(t *testing.T, typ, uid, version, sequenceText, digestText string) {
		get := func(name string) string {
			return map[string]string{"type": typ, "uid": uid, "resourceversion": version, "sequence": sequenceText, digest: digestText}[name]
		}
		a, err := AckedFrom(get)
		if err != nil {
			if a != (Acked{}) {
				t.Errorf("%+v comes with the error %v", a, err)
			}
			return
		}
		if err := a.Validate(); err != nil {
			t.Error(err)
		}
		if again := text(sequence(a.Epoch, a.ResourceVersion)); again != sequenceText {
			t.Errorf("sequence %q is written %q", sequenceText, again)
		}
		if next := NextEpoch(a.Epoch); next <= a.Epoch && a.Epoch != LastEpoch {
			t.Errorf("after epoch %d comes %d", a.Epoch, next)
		}
	})
}

// FuzzClaimFrom verifies that ClaimFrom accepts only data with a UID and a valid epoch.
func FuzzClaimFrom(f *testing.F) {
	f.Add([]byte(`{"uid":"u","claimed":"2026-01-02T03:04:05Z","epoch":1,"replaces":"v","stream":"s"}`))
	for _, epoch := range []string{"-1", "9999", "10000", "65535", "65536", "1.5", "1e3", `"1"`, "null"} {
		f.Add([]byte(`{"uid":"u","epoch":` + epoch + `}`))
	}
	f.Add([]byte(strings.Repeat("[", 20000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ClaimFrom(&Message{ID: "x", Attributes: []Attribute{{"type", string(ClusterClaimed)}}, Data: data})
		if err != nil {
			if !reflect.DeepEqual(c, Claim{}) {
				t.Errorf("%+v comes with the error %v", c, err)
			}
			return
		}
		if c.UID == "" || c.Epoch > LastEpoch {
			t.Errorf("took %+v", c)
		}
	})
}

// FuzzObjectFromData verifies that ObjectFromData accepts only valid JSON with the UID of the
// event.
func FuzzObjectFromData(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u"}}`), false)
	f.Add([]byte(`{"object":{"metadata":{"uid":"u"}},"previous":{}}`), true)
	f.Add([]byte(strings.Repeat(`{"a":`, 20000)), false)
	f.Add([]byte(strconv.Itoa(1<<20)), true)
	f.Fuzz(func(t *testing.T, data []byte, change bool) {
		attributes := map[string]string{"id": "u.1", "uid": "u"}
		if change {
			attributes[dataSchema] = SchemaChange
		}
		o, err := ObjectFromData(func(name string) string { return attributes[name] }, data)
		if err == nil && (o.UID != "u" || !json.Valid(data)) {
			t.Errorf("took %q", data)
		}
	})
}
