package event

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestPacker verifies that unpacking returns the packed text, with and without a dictionary, and
// that the dictionary saves memory.
func TestPacker(t *testing.T) {
	p := NewPacker()
	d, plain := NewConverter(nil, "").Decoder(pods, p, nil, Shape{}), NewConverter(nil, "").Decoder(pods, nil, nil, Shape{})
	var objects []*Object
	var want []string
	before, after := 0, 0
	for n := range 2 * dictionaries[1] {
		text := benchObject(uint64(n % 40))
		o, err := d.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		w, err := plain.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		objects, want = append(objects, o), append(want, textOf(w))
		if n < dictionaries[0]/2 {
			before += o.Body.Size()
		} else if n >= 2*dictionaries[1]-dictionaries[0]/2 {
			after += o.Body.Size()
		}
	}
	for n, o := range objects {
		if got := textOf(o); got != want[n] {
			t.Fatalf("object %d:\n got %s\nwant %s", n, got, want[n])
		}
	}
	if after >= before*3/4 {
		t.Errorf("%d bytes with a dictionary, %d without", after, before)
	}
	if empty := (Body{}); !empty.None() || textOf(&Object{}) != "" {
		t.Error("no body is one")
	}
	if got := fmt.Sprintf("%v %+v", objects[0].Body, JSON([]byte(`"canary"`))); strings.Contains(got, "canary") || got != fmt.Sprintf("%d bytes 8 bytes", objects[0].Body.Size()) {
		t.Errorf("a body prints as %q", got)
	}
}

// TestUnpackCorrupted verifies that a body that was corrupted in memory causes an error.
func TestUnpackCorrupted(t *testing.T) {
	o, err := NewConverter(nil, "").Decoder(pods, NewPacker(), nil, Shape{}).Decode(benchObject(1))
	if err != nil {
		t.Fatal(err)
	}
	o.Body.bytes = o.Body.bytes[:len(o.Body.bytes)/2]
	c := change(pods, o.Namespace, o.Name, nil)
	c.Object = o
	if _, err := builder.Message(c); err == nil {
		t.Error("an event was made of it")
	}
}

// TestCodec verifies that unpacking returns the packed text, whether or not the text resembles the
// samples, and that no text grows by more than 1% and 16 bytes.
func TestCodec(t *testing.T) {
	var like [][]byte
	for n := range samples {
		like = append(like, benchObject(uint64(n)))
	}
	random := make([]byte, 700<<10)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	learned := newCodec(like)
	if learned.dictionary == nil || learned.decoder == nil {
		t.Error("nothing was learned")
	}
	for name, c := range map[string]*codec{
		"learned": learned, "no dictionary": noDictionary, "nothing to learn from": newCodec(nil), "all the same": newCodec([][]byte{[]byte(`{}`), []byte(`{}`)}),
		"little to learn from": newCodec([][]byte{[]byte(`{"metadata":{"name":"a"},"data":{"x":"y"}}`)}),
	} {
		for what, text := range map[string][]byte{
			"a sample": like[3], "another": benchObject(99), "nothing": {}, "a byte": {'{'}, "a run": bytes.Repeat([]byte("a"), 100_000),
			"random": random, "random, short": random[:300], "long": bytes.Repeat(like[0], 100),
		} {
			for range 2 {
				b := c.pack(text)
				got, err := c.unpack(nil, b)
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
	c := newCodec([][]byte{benchObject(1), benchObject(2), benchObject(3)})
	f.Add(c.pack(benchObject(4)))
	f.Add(noDictionary.pack(benchObject(4)))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = c.unpack(nil, b)
		_, _ = noDictionary.unpack(nil, b)
	})
}
