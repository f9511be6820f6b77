package event

import (
	"bytes"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/podtest"
)

func BenchmarkMessage(b *testing.B) {
	c := change(deployments, "default", "web", nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := builder.Message(c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMessageBefore builds the event of a pod of 6 KB with one changed value, from
// compressed objects.
func BenchmarkMessageBefore(b *testing.B) {
	p, text := NewPacker(), podtest.Published(1)
	last := packed(p, text)
	now := packed(p, bytes.Replace(text, []byte("-information"), []byte("-other"), 1))
	c := Change{
		Type: Updated, Cause: CauseWatch, Key: pods.Key(now.Namespace, now.Name), Resource: pods, Observed: observed,
		Object: now, Previous: last.ResourceVersion,
	}
	known := c
	known.Before = last
	for _, bench := range []struct {
		name    string
		builder Builder
		change  Change
	}{{"none", builder, c}, {"changed", builder, known}, {"change", changeBuilder, known}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m, err := bench.builder.Message(bench.change)
				if err != nil {
					b.Fatal(err)
				}
				if (m.Attribute("changed") != "") != (bench.change.Before != nil) {
					b.Fatal("changed is there, or is not")
				}
				m.Free()
			}
		})
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

// BenchmarkUnpack decompresses a cached object, as a publish does.
func BenchmarkUnpack(b *testing.B) {
	o := packed(NewPacker(), podtest.Published(1))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := o.Body.JSON(); err != nil {
			b.Fatal(err)
		}
	}
}
