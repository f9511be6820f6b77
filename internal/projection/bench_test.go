package projection_test

import (
	"fmt"
	"strings"
	"testing"
)

// node is a Node of about 12 KB, with five conditions.
func node() string {
	var conditions, images []string
	for _, c := range []string{"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Ready"} {
		conditions = append(conditions, fmt.Sprintf(`{"type":%q,"status":"False","lastHeartbeatTime":"2026-11-22T00:00:00Z","lastTransitionTime":"2026-11-21T00:00:00Z","reason":"KubeletHas","message":"kubelet has sufficient memory available"}`, c))
	}
	for i := range 50 {
		images = append(images, fmt.Sprintf(`{"names":["registry.example.com/team/application-%d@sha256:%064d","registry.example.com/team/application-%d:v1.%d.0"],"sizeBytes":%d}`, i, i, i, i, 1<<20+i))
	}
	return `{"apiVersion":"v1","kind":"Node","metadata":{"name":"worker-1","uid":"2f6a1c52-8e0d-4a3e-9a77-0c1d5b8f4e21","resourceVersion":"123456","labels":{"kubernetes.io/hostname":"worker-1"},"annotations":{"example.com/checksum":"0123456789"}},"spec":{"podCIDR":"10.0.0.0/24"},"status":{"conditions":[` +
		strings.Join(conditions, ",") + `],"images":[` + strings.Join(images, ",") + `]}}`
}

// BenchmarkProject measures the projection alone. Decoding and encoding the object takes far
// longer.
func BenchmarkProject(b *testing.B) {
	text := node()
	if len(text) < 11_000 || len(text) > 13_000 {
		b.Fatalf("the node has %d bytes", len(text))
	}
	for name, paths := range map[string][]string{
		"heartbeats": {".status.conditions[*].lastHeartbeatTime", `.metadata.annotations["example.com/checksum"]`},
		"filter":     {`.status.conditions[?(@.type=="Ready")].lastHeartbeatTime`},
		"images":     {".status.images[*].sizeBytes"},
	} {
		b.Run(name, func(b *testing.B) {
			project := parse(b, "nodes", paths...).For(nodes).Project
			object := parsed(b, text)
			b.ReportAllocs()
			for b.Loop() {
				project(object, nil)
			}
		})
	}
}
