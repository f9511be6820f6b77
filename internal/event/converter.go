package event

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/json"
)

// Converter is what the [Decoder]s of a process share. It may be used by several
// goroutines at once.
type Converter struct {
	key   []byte
	names sync.Map // string to the same string, for the few values that every object repeats
}

// NewConverter makes a Converter that hashes the values of Secrets with the given
// key. Replicas and restarts need the same key, or each shows every value as
// changed. Without a key it makes one up, for its own lifetime: a hash without a
// key would let anyone who reads the bus try passwords.
func NewConverter(redactionKey []byte) *Converter {
	c := &Converter{key: bytes.Clone(redactionKey)}
	if len(c.key) == 0 {
		c.key = make([]byte, 32)
		rand.Read(c.key) // never fails
	}
	return c
}

// hidden is the JSON of a Secret, of whose fields o has those that it keeps apart, with
// its values hashed, without managedFields and the last-applied annotation. Keys come
// out sorted.
func (c *Converter) hidden(o *Object, text []byte) ([]byte, error) {
	var content map[string]any
	if json.Unmarshal(text, &content) != nil {
		return nil, errors.New("it has no JSON form") // the error may quote a value
	}
	content["apiVersion"], content["kind"] = o.APIVersion, o.Kind
	metadata := content["metadata"].(map[string]any) // is one, as it holds a name
	strip(metadata)
	c.redact(o, content, metadata)
	body, err := encode(content)
	if err != nil {
		return nil, errors.New("it has no JSON form")
	}
	return body, nil
}

// strip leaves out what repeats the object's own content.
func strip(metadata map[string]any) {
	delete(metadata, "managedFields")
	if annotations, ok := metadata["annotations"].(map[string]any); ok && annotations[lastApplied] != nil {
		if delete(annotations, lastApplied); len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
}

// intern gives one string for all that are equal to s. It is meant for the names
// of types, of which a cluster has hundreds.
func (c *Converter) intern(s string) string {
	if known, ok := c.names.Load(s); ok {
		return known.(string)
	}
	s = strings.Clone(s)
	known, _ := c.names.LoadOrStore(s, s)
	return known.(string)
}
