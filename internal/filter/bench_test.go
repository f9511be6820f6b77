package filter_test

import (
	"fmt"
	"strings"
	"testing"
)

// pod is a Pod of about 12 KB.
func pod() string {
	var containers, conditions []string
	for i := range 20 {
		containers = append(containers, fmt.Sprintf(`{"name":"c-%d","image":"registry.example.com/team/application:v1.%d.0","env":[{"name":"A","value":%q}],"resources":{"limits":{"cpu":"500m","memory":"1Gi"}}}`,
			i, i, strings.Repeat("x", 400)))
	}
	for _, c := range []string{"Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		conditions = append(conditions, fmt.Sprintf(`{"type":%q,"status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-22T00:00:00Z"}`, c))
	}
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1","namespace":"default","labels":{"app":"web"}},"spec":{"containers":[` +
		strings.Join(containers, ",") + `]},"status":{"phase":"Running","conditions":[` + strings.Join(conditions, ",") + `]}}`
}

// BenchmarkFilter measures the evaluation alone. Decoding the object takes far longer.
func BenchmarkFilter(b *testing.B) {
	text := pod()
	if len(text) < 11_000 || len(text) > 13_000 {
		b.Fatalf("the pod has %d bytes", len(text))
	}
	content := decode(b, text)
	for name, expression := range map[string]string{
		"phase":      `resource.resource != "pods" || object.status.phase == "Failed"`,
		"label":      `has(object.metadata.labels) && "app" in object.metadata.labels`,
		"conditions": `object.status.conditions.exists(c, c.type == "Ready" && c.status != "True")`,
		"containers": `object.spec.containers.all(c, quantity(c.resources.limits.memory).isLessThan(quantity("2Gi")))`,
		"fails":      `object.status.reason == "Evicted"`,
	} {
		b.Run(name, func(b *testing.B) {
			selects := compile(b, expression).For(pods)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = selects(content)
			}
		})
	}
}
