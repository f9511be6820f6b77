package event

// Shape says what is sent of the objects of one resource. Where both of its functions are
// nil everything is, and objects are not decoded. They get an object as it is sent
// otherwise, a Secret with hashes for its values, as maps, slices, strings, [json.Number],
// bool and nil.
type Shape struct {
	// Select tells whether an object is sent at all; nil for all. It changes nothing.
	Select func(object map[string]any) bool

	// Project removes what is not sent; nil to send all. Identity stays: apiVersion,
	// kind and in metadata name, namespace, uid and resourceVersion.
	Project func(object map[string]any)
}

// Whole tells whether everything is sent.
func (s Shape) Whole() bool { return s.Select == nil && s.Project == nil }
