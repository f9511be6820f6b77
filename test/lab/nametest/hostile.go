// Package nametest has names that break careless encodings, for tests and fuzz targets.
package nametest

// Hostile returns object names that some format must escape. RBAC objects can have nearly all of these
// names.
func Hostile() []string {
	return []string{
		"", " ", ".", "..", "a.b", "a..b", ".a", "a.", "_", "__", "=", "=2E", "=5F", "=63ore", "core", "*", ">", "a.>", "$SYS",
		"system:node", "system:controller:job-controller", "a/b", "/", "%", "%2F", "%zz", "a b", "a\tb", "a\nb", "a\r\nNats-Msg-Id: x",
		"\x00", "\x7f", "\u0085", "\ufdd0", "\uffff", "\U0001ffff", "\xff", "a\xc3", "\u2028", "é", "日本", "🙂", `"`, `\`, `","x":"`, "<&>",
		"?a=b", "#a", ";", ",", "_control", "snapshot", "a_b", "A-Z", "\ufffd",
	}
}
