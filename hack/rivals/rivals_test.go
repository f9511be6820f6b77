// Package rivals compares the JSON scanner and the compressor of the watch path with alternatives.
// It is a separate module, so that the project does not depend on the alternatives.
//
//	cd hack/rivals && go test -run xxx -bench .
package rivals

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/buger/jsonparser"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/minio/simdjson-go"
	"github.com/tidwall/gjson"
	"github.com/valyala/fastjson"

	"github.com/kuberelay/kuberelay/hack/bench/pods"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

var resource = event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}

// texts are pods as a watch sends them. bodies are the same pods in the form that the cache stores.
var texts, bodies = func() (texts, bodies [][]byte) {
	d := decode.NewConverter(nil, "").Decoder(resource, nil, nil, decode.Shape{})
	for i := range 3000 {
		text, err := json.Marshal(pods.Pod(1, i*7))
		if err != nil {
			panic(err)
		}
		o, err := d.Decode(text)
		if err != nil {
			panic(err)
		}
		body, err := o.Body.JSON()
		if err != nil {
			panic(err)
		}
		texts, bodies = append(texts, text), append(bodies, bytes.Clone(body))
	}
	return texts, bodies
}()

// BenchmarkScan scans a pod once. The scanners whose names begin with "checks/" validate the whole object.
// The other scanners accept truncated or broken objects.
func BenchmarkScan(b *testing.B) {
	var parser fastjson.Parser
	var parsed *simdjson.ParsedJson
	keys := [][]string{{"kind"}, {"metadata", "name"}, {"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "managedFields"}}
	for _, s := range []struct {
		name string
		scan func([]byte) bool
	}{
		{"checks/ours", func(t []byte) bool { s := jsonscan.New(t); s.Skip(); return s.End() == nil }},
		{"checks/encoding-json", json.Valid},
		{"checks/jsontext", func(t []byte) bool { return jsontext.Value(t).IsValid() }},
		{"checks/fastjson", func(t []byte) bool { return fastjson.ValidateBytes(t) == nil }},
		{"checks/fastjson-parse", func(t []byte) bool { _, err := parser.ParseBytes(t); return err == nil }},
		{"checks/gjson", gjson.ValidBytes},
		{"checks/simdjson", func(t []byte) bool {
			p, err := simdjson.Parse(t, parsed, simdjson.WithCopyStrings(false))
			parsed = p
			return err == nil
		}},
		{"does-not/gjson", func(t []byte) bool {
			return len(gjson.GetManyBytes(t, "kind", "metadata.name", "metadata.uid", "metadata.resourceVersion", "metadata.managedFields")) == 5
		}},
		{"does-not/jsonparser", func(t []byte) bool {
			return jsonparser.EachKey(t, func(int, []byte, jsonparser.ValueType, error) {}, keys...) != 0
		}},
		{"into-maps/encoding-json", func(t []byte) bool { var m map[string]any; return json.Unmarshal(t, &m) == nil }},
	} {
		b.Run(s.name, func(b *testing.B) {
			if s.name == "checks/simdjson" && !simdjson.SupportedCPU() {
				b.Skip("this CPU is not supported")
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(texts[0])))
			for i := 0; b.Loop(); i++ {
				if !s.scan(texts[i%len(texts)]) {
					b.Fatal("not valid")
				}
			}
		})
	}
}

// BenchmarkPack compresses the cached form of a pod. The result of our compressor includes the work of the
// decoder.
func BenchmarkPack(b *testing.B) {
	like := slices.Concat(bodies[0][:8000], bodies[40][:8000], bodies[80][:8000], bodies[120][:8000])
	fastest := []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(64 << 10)}
	plain, err := zstd.NewWriter(nil, fastest...)
	if err != nil {
		b.Fatal(err)
	}
	learned, err := zstd.NewWriter(nil, append(fastest, zstd.WithEncoderDictRaw(1, like))...)
	if err != nil {
		b.Fatal(err)
	}
	dictionary := s2.MakeDict(like, nil)
	reader, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderDictRaw(1, like))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		pack, unpack func(to, from []byte) []byte
	}{
		{"zstd", func(to, from []byte) []byte { return plain.EncodeAll(from, to) }, func(to, from []byte) []byte { to, _ = reader.DecodeAll(from, to); return to }},
		{"zstd-dictionary", func(to, from []byte) []byte { return learned.EncodeAll(from, to) }, func(to, from []byte) []byte { to, _ = reader.DecodeAll(from, to); return to }},
		{"s2", func(to, from []byte) []byte { return s2.Encode(to[:cap(to)], from) }, func(to, from []byte) []byte { to, _ = s2.Decode(to[:cap(to)], from); return to }},
		{"s2-dictionary", func(to, from []byte) []byte { return dictionary.Encode(to[:cap(to)], from) }, func(to, from []byte) []byte { to, _ = dictionary.Decode(to[:cap(to)], from); return to }},
	} {
		measure(b, c.name, c.pack, c.unpack)
	}
	// Our compressor also scans the object and allocates separate memory for each object.
	d := decode.NewConverter(nil, "").Decoder(resource, event.NewPacker(), nil, decode.Shape{})
	var objects []*event.Object
	for range 2 {
		objects = objects[:0]
		for _, body := range bodies {
			o, err := d.Decode(body)
			if err != nil {
				b.Fatal(err)
			}
			objects = append(objects, o)
		}
	}
	b.Run("ours/scan-and-pack", func(b *testing.B) {
		b.ReportAllocs()
		size, n := 0, 0
		for ; b.Loop(); n++ {
			o, err := d.Decode(bodies[n%len(bodies)])
			if err != nil {
				b.Fatal(err)
			}
			size += o.Body.Size()
		}
		b.ReportMetric(float64(size)/float64(n), "B/object")
	})
	b.Run("ours/unpack", func(b *testing.B) {
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			if _, err := objects[n%len(objects)].Body.JSON(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func measure(b *testing.B, name string, pack, unpack func(to, from []byte) []byte) {
	b.Run(name+"/pack", func(b *testing.B) {
		b.ReportAllocs()
		var to []byte
		size, n := 0, 0
		for ; b.Loop(); n++ {
			to = pack(to[:0], bodies[n%len(bodies)])
			size += len(to)
		}
		b.ReportMetric(float64(size)/float64(n), "B/object")
	})
	var packed [][]byte
	for _, body := range bodies {
		packed = append(packed, bytes.Clone(pack(nil, body)))
	}
	b.Run(name+"/unpack", func(b *testing.B) {
		b.ReportAllocs()
		var to []byte
		for n := 0; b.Loop(); n++ {
			if to = unpack(to[:0], packed[n%len(packed)]); len(to) != len(bodies[n%len(bodies)]) {
				b.Fatal("the result is a different object")
			}
		}
	})
}
