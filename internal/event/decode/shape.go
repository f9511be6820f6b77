package decode

// Shape says which objects of a resource are published, and which of their fields. The zero value
// publishes everything and decodes only Secrets. The functions receive each object as maps, slices,
// strings, [json.Number], bool, and nil. In a Secret, the values of data and stringData are already
// hashes, but labels and annotations are not.
type Shape struct {
	// None means that no object is published, so objects need no decoding.
	None bool

	// Select reports whether to publish an object. If it is nil, all objects are published. Select
	// must not modify the object. If it returns true and an error, the object is published.
	Select func(object map[string]any) (bool, error)

	// Project removes the fields that are not published, and replaces the values to hide with
	// hashes. hash returns the hash of a value at a path from the root. dropped reports whether
	// Project removed a field. If Project is nil, all fields are published. Project keeps the
	// identity: apiVersion, kind, and name, namespace, uid, and resourceVersion in metadata.
	Project func(object map[string]any, hash Hash) (dropped bool)

	// Mentions reports whether Project can change an object with this text. If it returns false,
	// the object isn't decoded for Project alone. If Mentions is nil, Project can change any
	// object.
	Mentions func(text []byte) bool

	// Drops means that Project can remove fields. A change that affects only the removed fields is
	// not published.
	Drops bool
}

// Hash is a function that returns the hash of a value. The path consists of member names and list
// positions.
type Hash func(path []string, value any) any

func (s Shape) decodes(text []byte) bool {
	return s.Select != nil || s.Drops || s.Project != nil && (s.Mentions == nil || s.Mentions(text))
}
