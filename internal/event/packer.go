package event

import "sync"

// Packer compresses the objects of one resource, for a cache. From some of them it makes a
// dictionary: objects of one type have most of their text in common, and with it they take
// half the memory (docs/sizing.md). It may be used by several goroutines at once.
//
// A nil Packer leaves everything as it is.
type Packer struct {
	mu      sync.Mutex
	codec   *codec
	seen    int // objects
	learned int // dictionaries
	samples [][]byte
}

// dictionaries says after how many objects there is a dictionary, and when there are better
// ones: lists are in the order of names, so that the first objects are too much alike. Each
// takes about 150 KB, and stays as long as objects that were packed with it.
var dictionaries = [...]int{128, 2048, 32768}

// samples of objects make a dictionary.
const (
	samples    = 8
	sampleSize = 8 << 10 // bytes
)

// NewPacker makes a Packer for one resource.
func NewPacker() *Packer { return &Packer{codec: noDictionary} }

// Pack is for who keeps objects that come as text, and copies what it keeps.
func (p *Packer) Pack(text []byte) Body { return p.pack(text) }

// pack copies what it keeps of an object's text.
func (p *Packer) pack(text []byte) Body {
	if p == nil {
		return JSON(append(make([]byte, 0, len(text)), text...))
	}
	c := p.learn(text)
	return Body{bytes: c.pack(text), packed: c}
}

// learn gives the codec to use for an object.
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
