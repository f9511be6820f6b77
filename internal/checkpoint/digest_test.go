package checkpoint

import (
	"context"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

type loads map[event.Key]event.Acked

func (l loads) Load(_ context.Context, yield func(event.Key, event.Acked) error) error {
	for k, a := range l {
		if err := yield(k, a); err != nil {
			return err
		}
	}
	return nil
}

// TestLoadKeepsDigests verifies that a load keeps the digest of a known entry while its event is
// still the last one on the bus. The forwarder may have computed that digest, so the event can have
// another digest or none. Packed and unpacked entries take separate paths.
func TestLoadKeepsDigests(t *testing.T) {
	key := event.Key{Resource: "pods", Namespace: "default", Name: "web"}
	for form, uid := range map[string]string{"packed": "6f1b9f6e-6c5d-4c6e-8d5e-0c9b3f3c1a11", "unpacked": "A"} {
		acked := func(version string, position uint64, digest byte) event.Acked {
			return event.Acked{UID: uid, ResourceVersion: version, Position: position, Time: 1, Digest: event.Digest{digest}}
		}
		for name, c := range map[string]struct{ known, bus, want event.Acked }{
			"found out":            {acked("5", 1, 7), acked("5", 1, 0), acked("5", 1, 7)},
			"none any more":        {acked("5", 1, 0), acked("5", 1, 7), acked("5", 1, 0)},
			"another event":        {acked("5", 1, 7), acked("6", 2, 0), acked("6", 2, 0)},
			"the same, elsewhere":  {acked("5", 1, 7), acked("5", 2, 0), acked("5", 2, 0)},
			"nothing known before": {event.Acked{}, acked("5", 1, 7), acked("5", 1, 7)},
		} {
			t.Run(form+"/"+name, func(t *testing.T) {
				checkpoint := newBench()
				checkpoint.Put(key, c.known)
				if _, err := checkpoint.Load(t.Context(), loads{key: c.bus}); err != nil {
					t.Fatal(err)
				}
				if got := checkpoint.Get(key); got != c.want {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
			})
		}
	}
}
