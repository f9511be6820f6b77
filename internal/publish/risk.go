package publish

import (
	"fmt"
	"strings"
)

// Risk is a setting that allows the bus to lose acknowledged messages.
type Risk struct {
	Setting string   // the setting with its value: "min.insync.replicas=1"
	Of      []string // the streams or topics with this setting
	Loses   string   // which messages the bus can lose, and when
	Fix     string
	Single  bool // the bus is a single server, so this is a choice rather than a mistake
}

// String describes the risk in one sentence.
func (r Risk) String() string {
	const show = 5
	of := strings.Join(r.Of[:min(show, len(r.Of))], ", ")
	if more := len(r.Of) - show; more > 0 {
		of += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s (%s): %s", r.Setting, of, r.Loses)
}
