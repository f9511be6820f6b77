//go:build !failpoints

package failpoint

// Hit is called where a test may want the process to die.
func Hit(string) {}

// Bug tells whether the code should behave as if it had this bug.
func Bug(string) bool { return false }
