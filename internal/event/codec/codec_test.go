package codec

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/podtest"
)

// TestCodec verifies that unpacking returns the packed text, whether or not the text resembles the
// samples, and that no text grows by more than 1% and 16 bytes.
func TestCodec(t *testing.T) {
	var like [][]byte
	for n := range 8 {
		like = append(like, podtest.Published(uint64(n)))
	}
	random := make([]byte, 700<<10)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	learned := New(like)
	if learned.dictionary == nil || learned.decoder == nil {
		t.Error("nothing was learned")
	}
	for name, c := range map[string]*Codec{
		"learned": learned, "no dictionary": Plain, "nothing to learn from": New(nil), "all the same": New([][]byte{[]byte(`{}`), []byte(`{}`)}),
		"little to learn from": New([][]byte{[]byte(`{"metadata":{"name":"a"},"data":{"x":"y"}}`)}),
	} {
		for what, text := range map[string][]byte{
			"a sample": like[3], "another": podtest.Published(99), "nothing": {}, "a byte": {'{'}, "a run": bytes.Repeat([]byte("a"), 100_000),
			"random": random, "random, short": random[:300], "long": bytes.Repeat(like[0], 100),
		} {
			for range 2 {
				b := c.Pack(text)
				got, err := c.Unpack(nil, b)
				if err != nil || !bytes.Equal(got, text) {
					t.Errorf("%s, %s: got %d bytes of %d: %v", name, what, len(got), len(text), err)
				}
				if len(b) > len(text)+len(text)/100+16 {
					t.Errorf("%s, %s: %d bytes became %d", name, what, len(text), len(b))
				}
			}
		}
	}
}

// FuzzUnpack verifies that corrupted input causes an error or another text, but never a crash.
func FuzzUnpack(f *testing.F) {
	c := New([][]byte{podtest.Published(1), podtest.Published(2), podtest.Published(3)})
	f.Add(c.Pack(podtest.Published(4)))
	f.Add(Plain.Pack(podtest.Published(4)))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = c.Unpack(nil, b)
		_, _ = Plain.Unpack(nil, b)
	})
}
