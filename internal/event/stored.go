package event

// Stored is the last event of an object, read from a bus.
type Stored struct {
	Acked     Acked
	Object    *Object // nil if only the headers were read
	Truncated Body    // the data of a truncated event, whose Object has no body
}

// Read sets what the data of the event shows. After an error, it shows nothing.
func (s *Stored) Read(m *Message) error {
	object, err := ObjectFromData(m.Attribute, m.Data)
	if err != nil {
		return err
	}
	truncated, err := TruncatedFromData(m.Attribute, m.Data)
	if err != nil {
		return err
	}
	s.Object, s.Truncated = object, truncated
	return nil
}
