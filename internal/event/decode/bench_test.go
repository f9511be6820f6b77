package decode

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/podtest"
)

// BenchmarkDecode decodes an object of 14 KB from a watch. Half of the object is managedFields.
func BenchmarkDecode(b *testing.B) {
	var texts [64][]byte
	for n := range texts {
		texts[n] = podtest.JSON(uint64(n))
	}
	for name, packer := range map[string]*event.Packer{"plain": nil, "packed": event.NewPacker()} {
		b.Run(name, func(b *testing.B) {
			d := NewConverter(nil, "").Decoder(pods, packer, nil, Shape{})
			for n := range 2048 /* objects, after which the packer makes its second dictionary */ {
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
