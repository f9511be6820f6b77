package replica

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// TestPointOf verifies that the point of a resource is the earliest of the last points of its
// partitions, if each partition has a point in the current history of the API server.
func TestPointOf(t *testing.T) {
	at := func(minute int) time.Time { return someTime.Add(time.Duration(minute) * time.Minute) }
	point := func(version string, partition, minute int) func(points) {
		return func(p points) {
			p.add(wire.Point{Resource: "configmaps", Version: version, AsOf: at(minute)}, partition, at(minute))
		}
	}
	inEpoch := func(n uint16, resource string, minute int) func(points) {
		return func(p points) {
			p.addEvent(Event{Key: event.Key{Resource: resource, Name: "a"}, Epoch: n, Stored: at(minute)})
		}
	}
	for _, tc := range []struct {
		name string
		read []func(points)
		want string // "" for none
	}{
		{"none", nil, ""},
		{"one", []func(points){point("9", 0, 1), point("9", 1, 1)}, "9"},
		{"the last", []func(points){point("9", 0, 1), point("9", 1, 1), point("10", 0, 2), point("10", 1, 2)}, "10"},
		{"one partition is behind", []func(points){point("9", 0, 1), point("10", 0, 2), point("9", 1, 1)}, "9"},
		{"one partition has none", []func(points){point("9", 0, 1)}, ""},
		{"no number", []func(points){point("x", 0, 1), point("x", 1, 1)}, ""},
		{"a later epoch follows", []func(points){point("9", 0, 1), point("9", 1, 1), inEpoch(1, "configmaps", 2)}, ""},
		{"a later epoch follows in one partition", []func(points){inEpoch(1, "configmaps", 2), point("9", 0, 1), point("9", 1, 1)}, ""},
		{"of a later epoch", []func(points){inEpoch(1, "configmaps", 2), point("7", 0, 3), point("7", 1, 3)}, "7"},
		{"of a later epoch, which began in the partition that is read last", []func(points){
			inEpoch(1, "configmaps", 5), point("7", 0, 3), point("7", 1, 3), inEpoch(1, "configmaps", 2),
		}, "7"},
		{"another resource has a later epoch", []func(points){point("9", 0, 1), point("9", 1, 1), inEpoch(1, "pods", 2)}, "9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPoints()
			for _, f := range tc.read {
				f(p)
			}
			if got := p.of(schema.GroupResource{Resource: "configmaps"}, []int{0, 1}); got.Version != tc.want {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
		})
	}
}
