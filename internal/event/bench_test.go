package event

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
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
	d := NewConverter(nil, "").Decoder(pods, NewPacker(), nil, Shape{})
	decode := func(text []byte) *Object {
		o, err := d.Decode(text)
		if err != nil {
			b.Fatal(err)
		}
		return o
	}
	text := benchObject(1)
	last := decode(text)
	now := decode(bytes.Replace(text, []byte("-information"), []byte("-other"), 1))
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

// BenchmarkDecode decodes an object of 14 KB from a watch. Half of the object is managedFields.
func BenchmarkDecode(b *testing.B) {
	var texts [64][]byte
	for n := range texts {
		texts[n] = benchObject(uint64(n))
	}
	for name, packer := range map[string]*Packer{"plain": nil, "packed": NewPacker()} {
		b.Run(name, func(b *testing.B) {
			d := NewConverter(nil, "").Decoder(pods, packer, nil, Shape{})
			for n := range dictionaries[1] {
				if _, err := d.Decode(texts[n%len(texts)]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(texts[0])))
			size, n := 0, 0
			for b.Loop() {
				o, err := d.Decode(texts[n%len(texts)])
				if err != nil {
					b.Fatal(err)
				}
				size, n = size+o.Body.Size(), n+1
			}
			b.ReportMetric(float64(size)/float64(n), "kept-B/op")
		})
	}
}

// BenchmarkUnpack decompresses a cached object, as a publish does.
func BenchmarkUnpack(b *testing.B) {
	o, err := NewConverter(nil, "").Decoder(pods, NewPacker(), nil, Shape{}).Decode(benchObject(1))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := o.Body.JSON(); err != nil {
			b.Fatal(err)
		}
	}
}

// benchObject returns the text of a pod that is not too repetitive.
func benchObject(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	fmt.Fprintf(&b, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-%x","namespace":"default","uid":"%x","resourceVersion":"%d","managedFields":[`, r.Uint32(), r.Uint64(), r.Uint32())
	for n := range 60 {
		fmt.Fprintf(&b, `{"f:spec":{"f:containers":{"k:{\"name\":\"c-%d\"}":{".":{},"f:env":{"k:{\"name\":\"%x\"}":{}}}}}},`, n, r.Uint32())
	}
	b.WriteString(`{}]},"spec":{"env":[`)
	for range 110 {
		fmt.Fprintf(&b, `{"name":"SETTING_%x","value":"%x-information"},`, r.Uint32()%97, r.Uint64())
	}
	b.WriteString(`{}]}}`)
	return []byte(b.String())
}
