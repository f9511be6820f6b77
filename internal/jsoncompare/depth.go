package jsoncompare

// IsDeeper tells whether a decoded value has more objects and arrays one within the other
// than that. What compares such values, or writes them, may take their size times their
// depth, or the stack.
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
