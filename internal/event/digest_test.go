package event

import (
	"encoding/json"
	"testing"
)

// TestDigestText verifies that an empty digest is absent from JSON, and that all other digests
// survive a round trip.
func TestDigestText(t *testing.T) {
	type holder struct {
		Digest Digest `json:"digest,omitzero"`
	}
	for want, text := range map[Digest]string{
		{}:              `{}`,
		someDigest:      `{"digest":"0123ab000000000000000000000000ff"}`,
		{0x01, 7: 0xff}: `{"digest":"01000000000000ff"}`,
	} {
		b, err := json.Marshal(holder{want})
		if err != nil || string(b) != text {
			t.Errorf("got %s, %v; want %s", b, err, text)
		}
		var got holder
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Digest != want {
			t.Errorf("%s: got %s, %v; want %s", text, got.Digest, err, want)
		}
	}
	for _, text := range []string{`{"digest":"0"}`, `{"digest":"0123ab000000000000000000000000ffff"}`, `{"digest":"x123ab000000000000000000000000ff"}`, `{"digest":1}`} {
		if err := json.Unmarshal([]byte(text), new(holder)); err == nil {
			t.Errorf("%s is a digest", text)
		}
	}
}
