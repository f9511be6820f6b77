// Package markdown formats text for the tables of the generated pages.
package markdown

import (
	"regexp"
	"strings"
)

var name = regexp.MustCompile(`KUBERELAY_[A-Z0-9_]+(=[a-z0-9]+)?|kuberelay_[a-z0-9_]+`)

// Cell escapes the characters that Markdown interprets as a column separator or, outside of code, as
// emphasis or as a tag. Outside of code, it formats the names of variables and metrics as code.
func Cell(s string) string {
	parts := strings.Split(s, "`")
	for i := range parts {
		if i%2 == 0 {
			parts[i] = strings.NewReplacer("*", `\*`, "<", `\<`).Replace(parts[i])
			parts[i] = name.ReplaceAllString(parts[i], "`$0`")
		}
		parts[i] = strings.ReplaceAll(parts[i], "|", `\|`)
	}
	return strings.Join(parts, "`")
}
