package event

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// maxPlainAnnotation is the length in bytes from which on a Secret's annotation is
// held to be a copy of the Secret, maybe a compressed one: that of the longest
// label.
const maxPlainAnnotation = 63

// Redact replaces the values of a Secret by keyed hashes, as events have them.
func (c *Converter) Redact(secret map[string]any) {
	metadata, ok := secret["metadata"].(map[string]any)
	if !ok {
		return
	}
	o := &Object{}
	o.Namespace, _ = metadata["namespace"].(string)
	o.Name, _ = metadata["name"].(string)
	c.redact(o, secret)
}

// redact replaces the values of a Secret by keyed hashes. A value in data stays base64, so that a subscriber can
// unmarshal the object into a corev1.Secret.
//
// Tools other than kubectl keep copies of what they applied in annotations of
// their own, some compressed (kapp.k14s.io/original, objectset.rio.cattle.io/applied).
// So an annotation is hashed as well if it could be one, or if it holds one of the
// values.
func (c *Converter) redact(o *Object, content map[string]any) {
	metadata := content["metadata"].(map[string]any) // is one, as it holds a name
	var values []string                              // in every form in which a copy would hold them
	for _, section := range []string{"data", "stringData"} {
		value, ok := content[section]
		if !ok || value == nil {
			continue
		}
		fields, ok := value.(map[string]any)
		if !ok {
			content[section] = c.hash(o, section, "", value)
			continue
		}
		hashed := make(map[string]any, len(fields))
		for name, v := range fields {
			h := c.hash(o, section, name, v)
			if section == "data" {
				h = base64.StdEncoding.EncodeToString([]byte(h))
			}
			hashed[name] = h
			values = appendForms(values, v)
		}
		content[section] = hashed
	}
	switch annotations := metadata["annotations"].(type) {
	case nil:
	case map[string]any:
		metadata["annotations"] = c.redactAnnotations(o, annotations, values)
	default:
		metadata["annotations"] = c.hash(o, "annotations", "", annotations)
	}
}

func (c *Converter) redactAnnotations(o *Object, annotations map[string]any, values []string) map[string]any {
	redacted := make(map[string]any, len(annotations))
	for name, v := range annotations {
		if s, ok := v.(string); ok && !mayCopy(s, values) {
			redacted[name] = s
		} else {
			redacted[name] = c.hash(o, "annotations", name, v)
		}
	}
	return redacted
}

func mayCopy(annotation string, values []string) bool {
	if len(annotation) > maxPlainAnnotation || strings.HasPrefix(strings.TrimSpace(annotation), "{") {
		return true
	}
	for _, v := range values {
		if strings.Contains(annotation, v) {
			return true
		}
	}
	return false
}

// appendForms appends a value as it is, decoded and encoded.
func appendForms(values []string, v any) []string {
	s, ok := v.(string)
	if !ok || s == "" {
		return values
	}
	values = append(values, s, base64.StdEncoding.EncodeToString([]byte(s)))
	if decoded, err := base64.StdEncoding.DecodeString(s); err == nil && len(decoded) > 0 {
		values = append(values, string(decoded))
	}
	return values
}

// hash is "hmac-sha256:" and the hash of a value in its place. The place is part of
// it, so that equal values in two Secrets do not show as equal; every part is
// preceded by its length, so that no two places are hashed as the same bytes. What
// is not a string is hashed as JSON.
func (c *Converter) hash(o *Object, section, field string, value any) string {
	form := "text"
	s, ok := value.(string)
	if !ok {
		form = "json"
		b, _ := encode(value) // decoded from JSON, so it has that form
		s = string(b)
	}
	h := hmac.New(sha256.New, c.key)
	for _, part := range []string{o.Namespace, o.Name, section, field, form, s} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return "hmac-sha256:" + hex.EncodeToString(h.Sum(nil))
}
