package event

import "sync"

// Packer compresses the objects of one resource, for a cache. It makes a dictionary from
// some of them. Objects of one type have most of their text in common, so they take half
// the memory with a dictionary (docs/sizing.md). Several goroutines can use it at once.
//
// A nil Packer does not compress.
type Packer struct {
	mu      sync.Mutex
	codec   *codec
	seen    int // number of objects
	learned int // number of dictionaries made
	samples [][]byte
}

// dictionaries holds the numbers of objects after which a new dictionary is made. Lists are
// sorted by name, so the first objects are too similar for a good one. Each dictionary
// takes about 150 KB, and stays in memory as long as objects that were compressed with it.
var dictionaries = [...]int{128, 2048, 32768}

// A dictionary is made from this number of sample objects, up to sampleSize bytes of each.
const (
	samples    = 8
	sampleSize = 8 << 10
)

// NewPacker returns a Packer for one resource.
func NewPacker() *Packer { return &Packer{codec: noDictionary} }

// Pack compresses the text of an object. It copies what it keeps.
func (p *Packer) Pack(text []byte) Body { return p.pack(text) }

// pack compresses the text of an object. It copies what it keeps.
func (p *Packer) pack(text []byte) Body {
	if p == nil {
		return JSON(append(make([]byte, 0, len(text)), text...))
	}
	c := p.learn(text)
	return Body{bytes: c.pack(text), packed: c}
}

// learn returns the codec for an object, and may make a new dictionary.
func (p *Packer) learn(text []byte) *codec {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.learned == len(dictionaries) {
		return p.codec
	}
	next := dictionaries[p.learned]
	if p.seen%(next/samples) == 0 {
		p.samples = append(p.samples, append([]byte(nil), text[:min(len(text), sampleSize)]...))
	}
	if p.seen++; p.seen >= next {
		p.codec, p.samples = newCodec(p.samples[max(0, len(p.samples)-samples):]), nil
		p.learned++
	}
	return p.codec
}
