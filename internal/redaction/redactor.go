package redaction

import "encoding/base64"

// Redactor hashes the values of one object in place. Use it in one goroutine, and call SecretData
// and SecretMetadata at most once.
type Redactor struct {
	Key *Key
	// Of is the object whose values are hashed.
	Of Object
	// Again means that the state was read from the bus, so values that are already hashes stay unchanged.
	Again bool

	hashed bool // a value was replaced
}

// Hashed reports whether a value was replaced.
func (r *Redactor) Hashed() bool { return r.hashed }

// Value returns the hash of a value at a path. If Again is set, a value that is already a hash
// stays unchanged.
func (r *Redactor) Value(path []string, value any) any {
	if r.Again && IsHash(value) {
		return value
	}
	return r.hash(path, value)
}

func (r *Redactor) hash(path []string, value any) string {
	r.hashed = true
	return r.Key.Hash(r.Of, path, value)
}

// IsSecret reports whether the object is a core Secret.
func (o Object) IsSecret() bool { return o.Group == "" && o.Resource == "secrets" }

// Field is like Value, but for a field that the configuration names. In a Secret, it leaves data,
// labels, and annotations to [Redactor.SecretData] and [Redactor.SecretMetadata].
func (r *Redactor) Field(path []string, value any) any {
	if r.Of.IsSecret() && len(path) > 0 {
		switch {
		case path[0] == "data" || path[0] == "stringData":
			return value
		case path[0] == "metadata" && (len(path) == 1 || path[1] == "labels" || path[1] == "annotations"):
			return value
		}
	}
	return r.Value(path, value)
}

// SecretData hashes the values in data and stringData of a Secret. A value in data stays
// Base64, so that a subscriber can unmarshal the object into a corev1.Secret.
func (r *Redactor) SecretData(secret map[string]any) {
	for _, section := range []string{"data", "stringData"} {
		value, ok := secret[section]
		if !ok || value == nil {
			continue
		}
		fields, ok := value.(map[string]any)
		if !ok {
			secret[section] = r.Value([]string{section}, value)
			continue
		}
		for name, v := range fields {
			path := []string{section, name}
			switch {
			case section == "stringData":
				fields[name] = r.Value(path, v)
			case !r.Again || !isEncodedHash(v):
				fields[name] = base64.StdEncoding.EncodeToString([]byte(r.hash(path, v)))
			}
		}
	}
}

// SecretMetadata hashes the names and values of a Secret's labels and annotations, except those
// that isPublic lists.
//
// Annotations can contain copies of objects that tools applied, and passwords that people noted:
// former passwords, parts of a larger value, or encoded passwords. Hashing only annotations that contain
// one of the Secret's values would miss some of these passwords. It would also reveal whether a guess in
// an annotation matches a value.
func (r *Redactor) SecretMetadata(secret map[string]any) {
	metadata, _ := secret["metadata"].(map[string]any)
	for _, section := range []string{"labels", "annotations"} {
		value, ok := metadata[section]
		if !ok || value == nil {
			continue
		}
		fields, ok := value.(map[string]any)
		if !ok {
			metadata[section] = r.Value([]string{"metadata", section}, value)
			continue
		}
		redacted := make(map[string]any, len(fields))
		for name, v := range fields {
			if _, text := v.(string); text && isPublic[name] {
				redacted[name] = v
				continue
			}
			as, _ := r.Value([]string{"metadata", section}, name).(string)
			redacted[as] = r.Value([]string{"metadata", section, name}, v)
		}
		metadata[section] = redacted
	}
}
