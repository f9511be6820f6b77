package event

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func BenchmarkSubject(b *testing.B) {
	k := Key{"cluster.x-k8s.io", "machinedeployments", "team-a", "ip-10-0-0-1.eu-west-1.compute.internal"}
	b.ReportAllocs()
	for b.Loop() {
		Subject("kuberelay", "6f1b0a1c-6d4c-4f6e-9a53-1f8a3a8f7d11", k)
	}
}

func BenchmarkParseSubject(b *testing.B) {
	s := Subject("kuberelay", "c1", Key{"apps", "deployments", "default", "web"})
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, _, err := ParseSubject(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMessage(b *testing.B) {
	c := change(deployments, "default", "web", nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := builder.Message(c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStructured(b *testing.B) {
	m, err := builder.Message(change(deployments, "default", "web", nil))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Structured(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFromUnstructured(b *testing.B) {
	u := &unstructured.Unstructured{}
	object := strings.Replace(string(body(deployments, "default", "web")), `"replicas":3`, `"replicas":3,"env":[`+strings.Repeat(`{"name":"a","value":"b"},`, 50)+`{}]`, 1)
	if err := json.Unmarshal([]byte(object), &u.Object); err != nil {
		b.Fatal(err)
	}
	c := NewConverter([]byte("key"))
	b.ReportAllocs()
	b.SetBytes(int64(len(object)))
	for b.Loop() {
		if _, err := c.FromUnstructured(deployments, u); err != nil {
			b.Fatal(err)
		}
	}
}
