package jsoncompare

// IsDeeper reports whether the objects and arrays in a decoded value are nested more than levels
// deep. Comparing or encoding a deep value can cost its size times its depth, or overflow the
// stack.
func IsDeeper(value any, levels int) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			if levels == 0 || IsDeeper(member, levels-1) {
				return true
			}
		}
	case []any:
		for _, item := range v {
			if levels == 0 || IsDeeper(item, levels-1) {
				return true
			}
		}
	}
	return false
}
