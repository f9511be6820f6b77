package tail

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Text formats events as lines for people:
//
//	15:04:05.000  created   pods            default/web-1   v12345  watch
//	15:04:06.000  snapshot completed  pods  12 objects
//	15:04:07.000  writer started  kuberelay:2  forwarder-7d4b
//	15:04:08.000  cluster claimed  prod-eu1  5f0c91d2-…
//
// A line begins with the time when the forwarder observed the change, and with the date unless it is
// today. Columns grow with their content, up to a limit. Longer text shifts only its own line. From
// the first event of a second cluster on, each line ends with the name of its cluster. The zero
// value is ready for use. Text is not safe for concurrent use.
type Text struct {
	Color    bool             // use terminal colors
	Location *time.Location   // time zone of the printed times; local if nil
	Now      func() time.Time // time.Now if nil

	columns  [columns]int // current width of each column
	cluster  string       // cluster of the first event
	clusters bool         // an event had another cluster
}

// The columns before the last one.
const (
	columnTime = iota
	columnType
	columnResource
	columnName
	columnVersion
	columns
)

// least and most are the initial and the maximum width of a column.
var (
	least = [columns]int{columnTime: 12, columnType: 8, columnResource: 14, columnName: 14, columnVersion: 6}
	most  = [columns]int{columnTime: 23, columnType: 8, columnResource: 32, columnName: 64, columnVersion: 21}
)

const gap = 2 // between columns

// Parameters of the ANSI escape sequences for colors and bold text.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	grey   = "90"
)

// Line returns the event as one line, without a newline at its end.
func (t *Text) Line(e Event) string {
	m := e.Message
	l := line{text: t}
	at := t.time(e)
	l.add(columnTime, fmt.Sprintf("%*s", t.columns[columnTime], at), "")
	l.add(columnType, word(m), color(m))
	switch {
	case event.Type(m.Attribute("type")) == event.WriterStarted:
		writer, partition := started(m)
		l.add(columnResource, show(partition), "")
		l.end(show(writer))
	case m.IsResolved():
		l.add(columnResource, show(m.Key.GroupResource().String()), "")
		l.end("v" + show(m.Attribute("resourceversion")) + "  " + objects(m.Attribute("objects")))
		if e.Log.Topic != "" { // the point covers the events before it in its partition
			l.end(fmt.Sprintf("partition %d", e.Log.Partition))
		}
	case m.IsClaim():
		l.add(columnResource, show(e.Cluster), "")
		l.end(claimed(m))
	case m.Marker:
		l.add(columnResource, show(m.Key.GroupResource().String()), "")
		l.end(count(m))
	default:
		l.add(columnResource, show(m.Key.GroupResource().String()), "")
		l.add(columnName, name(m.Key), "")
		l.add(columnVersion, version(m), "")
		l.end(cause(e))
	}
	if t.cluster == "" {
		t.cluster = e.Cluster
	}
	t.clusters = t.clusters || e.Cluster != t.cluster
	if t.clusters {
		l.end("[" + show(e.Cluster) + "]")
	}
	if m.Marker {
		return t.paint(l.b.String(), grey)
	}
	return l.b.String()
}

func (t *Text) paint(s, color string) string {
	if !t.Color || color == "" {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

func (t *Text) time(e Event) string {
	at, err := time.Parse(time.RFC3339Nano, e.Message.Attribute("time"))
	if err != nil {
		at = e.Stored
	}
	location, now := cmp.Or(t.Location, time.Local), t.Now
	if now == nil {
		now = time.Now
	}
	at = at.In(location)
	if at.Format(time.DateOnly) == now().In(location).Format(time.DateOnly) {
		return at.Format("15:04:05.000")
	}
	return at.Format("2006-01-02 15:04:05.000")
}

// line is a line under construction.
type line struct {
	text  *Text
	b     strings.Builder
	width int // current width, in visible characters
	due   int // column at which the next cell begins, unless the line is already longer
}

// add writes a cell into its column.
func (l *line) add(column int, cell, color string) {
	width := utf8.RuneCountInString(cell)
	w := &l.text.columns[column]
	*w = max(*w, least[column])
	if width <= most[column] {
		*w = max(*w, width)
	}
	l.put(cell, width, color)
	l.due += *w + gap
}

// end writes a cell without a fixed width.
func (l *line) end(cell string) {
	if cell != "" {
		l.put(cell, utf8.RuneCountInString(cell), "")
		l.due = 0 // nothing is aligned after this
	}
}

func (l *line) put(cell string, width int, color string) {
	if l.b.Len() > 0 {
		pad := max(gap, l.due-l.width)
		l.b.WriteString(strings.Repeat(" ", pad))
		l.width += pad
	}
	l.b.WriteString(l.text.paint(cell, color))
	l.width += width
}

// word returns the type of an event in words, such as "created" or "snapshot completed". It returns
// the type of another writer's event unchanged.
func word(m *event.Message) string {
	t, ours := strings.CutPrefix(m.Attribute("type"), event.TypePrefix)
	if !ours {
		return show(t)
	}
	return strings.ReplaceAll(show(strings.TrimPrefix(t, "object.")), ".", " ")
}

func color(m *event.Message) string {
	switch event.Type(m.Attribute("type")) {
	case event.Created:
		return green
	case event.Updated:
		return yellow
	case event.Deleted, event.Deselected:
		return red
	case event.Snapshot:
		return cyan
	}
	return ""
}

func name(k event.Key) string {
	if k.Namespace == "" {
		return show(k.Name)
	}
	return show(k.Namespace + "/" + k.Name)
}

func version(m *event.Message) string {
	if v := m.Attribute("resourceversion"); v != "" {
		return show("v" + v)
	}
	return "-"
}

// cause returns the cause of an event and remarks on its data, such as "truncated".
func cause(e Event) string {
	m := e.Message
	var words []string
	if c := m.Attribute("cause"); c != "" {
		words = append(words, show(c))
	}
	if m.Attribute("finalstateunknown") == "true" {
		words = append(words, "final state unknown")
	}
	if m.Attribute("truncated") == "true" {
		words = append(words, "truncated")
	}
	if e.note != "" {
		words = append(words, e.note)
	}
	return strings.Join(words, ", ")
}

// count returns the number of objects in the marker at the end of a snapshot, or "" for other events.
func count(m *event.Message) string {
	var data struct {
		Count int `json:"count"`
	}
	if event.Type(m.Attribute("type")) != event.SnapshotCompleted || json.Unmarshal(m.Data, &data) != nil {
		return ""
	}
	return objects(strconv.Itoa(data.Count))
}

func objects(count string) string {
	if count == "1" {
		return "1 object"
	}
	return show(count) + " objects"
}

// started returns the writer in a writer marker, and the topic and partition of the marker.
func started(m *event.Message) (writer, partition string) {
	var data struct {
		Writer    string `json:"writer"`
		Topic     string `json:"topic"`
		Partition int    `json:"partition"`
	}
	if json.Unmarshal(m.Data, &data) != nil {
		return "", ""
	}
	return data.Writer, fmt.Sprintf("%s:%d", data.Topic, data.Partition)
}

// claimed returns the owner of the cluster name in a claim.
func claimed(m *event.Message) string {
	c, err := event.ClaimFrom(m)
	switch {
	case err != nil:
		return ""
	case c.Replaces != "":
		return show(c.UID) + ", replacing " + show(c.Replaces)
	}
	return show(c.UID)
}

// show returns a word unchanged if it is printable and clearly one word. Otherwise, it quotes the
// word.
func show(s string) string {
	plain := func(r rune) bool { return unicode.IsPrint(r) && r != '"' && r != '\\' && r != ' ' }
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)) || !plain(r) {
			return strconv.Quote(s)
		}
	}
	if s == "" {
		return `""`
	}
	return s
}
