package event

// Shape says what is sent of the objects of one resource: everything, without decoding an
// object, if it is the zero value. They get an object as it is sent
// otherwise, a Secret with hashes for its values, as maps, slices, strings, [json.Number],
// bool and nil.
type Shape struct {
	// None: no object is sent, whatever it is. Objects are not decoded.
	None bool

	// Select tells whether an object is sent at all; nil for all. It changes nothing.
	Select func(object map[string]any) bool

	// Project removes what is not sent, and tells whether there was any; nil to send all.
	// Identity stays: apiVersion, kind and in metadata name, namespace, uid and
	// resourceVersion.
	Project func(object map[string]any) (dropped bool)
}

// decodes tells whether one of the functions is to be asked.
func (s Shape) decodes() bool { return s.Select != nil || s.Project != nil }
