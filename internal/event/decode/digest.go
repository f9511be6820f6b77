package decode

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"

	"github.com/cespare/xxhash/v2"

	"github.com/kuberelay/kuberelay/internal/event"
)

// textDigest returns the text digest of a published text.
func textDigest(text []byte) (d event.Digest) {
	binary.BigEndian.PutUint64(d[:], max(1, xxhash.Sum64(text)))
	return d
}

// DigestOf returns the projected digest of an object whose body is b after projection.
func DigestOf(b event.Body) (event.Digest, error) {
	text, err := b.JSON()
	if err != nil {
		return event.Digest{}, err
	}
	content, err := tree(text)
	if err != nil {
		return event.Digest{}, err
	}
	return digestOf(content)
}

// digestOf returns the digest of a decoded object. It does not change the object.
func digestOf(content map[string]any) (event.Digest, error) {
	if metadata, ok := content["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "resourceVersion")
		delete(metadata, "generation")
		content = maps.Clone(content)
		content["metadata"] = metadata
	}
	text, err := event.EncodeJSON(content)
	if err != nil {
		return event.Digest{}, err
	}
	sum := sha256.Sum256(text)
	return event.Digest(sum[:len(event.Digest{})]), nil
}

// errNotJSON replaces errors that might quote a value.
var errNotJSON = errors.New("it is not valid JSON")

// tree decodes an object. Numbers keep their text.
func tree(text []byte) (map[string]any, error) {
	var content map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&content) != nil {
		return nil, errNotJSON
	}
	return content, nil
}
