package torture

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/kuberelay/kuberelay/test/harness"
)

// commonForgeries are the forgeries that exist on every bus.
var commonForgeries = []forgery{
	{"forged events", func(f *forger) []rawMessage {
		var all []rawMessage
		for range 1 + f.IntN(3) {
			m := f.object()
			f.turn(&m)
			all = append(all, f.encode(m, m.Attributes["resourceversion"] != ""))
		}
		return all
	}},
	{"a forged event of a live object", func(f *forger) []rawMessage {
		if len(f.live) == 0 {
			return nil
		}
		m := f.copy(f.live[f.IntN(len(f.live))])
		f.turn(&m)
		return []rawMessage{f.encode(m, m.Attributes["resourceversion"] != "")}
	}},
	{"replays", func(f *forger) []rawMessage {
		var all []rawMessage
		for range 1 + f.IntN(4) {
			if len(f.all) == 0 {
				break
			}
			m := f.all[f.IntN(len(f.all))]
			if m.Body == nil {
				continue
			}
			all = append(all, f.encode(f.copy(m), !isMarker(m)))
		}
		return all
	}},
	{"events of an impossible epoch", func(f *forger) []rawMessage {
		m := f.object()
		m.Attributes["sequence"] = []string{"65535.0", "65535.", "9999.", "10000."}[f.IntN(4)] + fmt.Sprintf("%019d", f.IntN(1<<30))
		return []rawMessage{f.encode(m, false)}
	}},
	{"events with broken attributes", func(f *forger) []rawMessage {
		var all []rawMessage
		for range 1 + f.IntN(3) {
			m := f.object()
			name := []string{"uid", "resourceversion", "type", "sequence", "partitionkey", "specversion", "id", "time", "digest", "previousversion"}[f.IntN(10)]
			m.Attributes[name] = []string{"", "-1", "0", "99999999999999999999999999", "ÿ\x01", "a/b", "0000.x"}[f.IntN(7)]
			all = append(all, f.encode(m, name == "time" || name == "previousversion"))
		}
		return all
	}},
	{"forged markers", func(f *forger) []rawMessage {
		m := f.invented()
		kind := []string{"started", "completed"}[f.IntN(2)]
		id := fmt.Sprintf("snapshot.%s.%d", kind, f.IntN(1000))
		m.Attributes = map[string]string{
			"specversion": "1.0", "id": id, "source": m.Attributes["source"], "type": "io.kuberelay.snapshot." + kind, "subject": "/api/v1/configmaps",
			"partitionkey": clusterName + "/_control/snapshot/core/configmaps", "time": m.Attributes["time"],
		}
		m.Data = []byte([]string{`{"resource":"configmaps","count":-1}`, `{`, `{"resource":"configmaps","count":1e99}`, ""}[f.IntN(4)])
		m.Subject = "kuberelay." + clusterName + "._control.snapshot.core.configmaps"
		return []rawMessage{f.encode(m, false)}
	}},
	{"forged claims", func(f *forger) []rawMessage {
		m := f.invented()
		m.Attributes = map[string]string{
			"specversion": "1.0", "id": "cluster.claimed.x.1", "source": m.Attributes["source"], "type": "io.kuberelay.cluster.claimed", "subject": "/",
			"partitionkey": clusterName + "/_control/cluster/_/claimed", "time": m.Attributes["time"],
		}
		m.Data = []byte([]string{"", `{`, `{"uid":""}`, `{"uid":"x","epoch":60000}`, `{"uid":"x","epoch":-1}`, `{"uid":7}`, `[]`}[f.IntN(7)])
		m.Subject = "kuberelay." + clusterName + "._control.cluster._.claimed"
		return []rawMessage{f.encode(m, false)}
	}},
	{"events of another cluster", func(f *forger) []rawMessage {
		m := f.object()
		key := m.Attributes["partitionkey"]
		m.Attributes["source"] = "/kubernetes/another"
		m.Attributes["partitionkey"] = "another" + key[len(clusterName):]
		m.Subject = string(bytes.Replace([]byte(m.Subject), []byte(clusterName), []byte("another"), 1))
		return []rawMessage{f.encode(m, false)}
	}},
	{"an event in the place of another object", func(f *forger) []rawMessage {
		m, other := f.object(), f.object()
		if m.Subject == other.Subject {
			return nil
		}
		m.Subject, m.Place = other.Subject, other.Place
		return []rawMessage{f.encode(m, false)}
	}},
	{"garbage", func(f *forger) []rawMessage {
		m := f.encode(f.object(), false)
		m.headers = nil
		for range f.IntN(4) {
			m.headers = append(m.headers, rawHeader{[]string{"ce-id", "ce_id", "content-type", "x", "ce-type", "ce_type"}[f.IntN(6)], fmt.Sprintf("%x", f.Uint64())})
		}
		m.body = f.bytes(f.IntN(200))
		return []rawMessage{m}
	}},
	{"a huge payload", func(f *forger) []rawMessage {
		m := f.encode(f.object(), false)
		m.headers, m.body = nil, f.bytes(900_000+f.IntN(100_000))
		return []rawMessage{m}
	}},
	{"a wrong content type", func(f *forger) []rawMessage {
		o := f.object()
		m := f.encode(o, false)
		m.headers = slices.DeleteFunc(m.headers, func(h rawHeader) bool { return h.name == "content-type" })
		m.headers = append(m.headers, rawHeader{"content-type", []string{"application/cloudevents+json", "application/cloudevents-batch+json", "application/cloudevents+avro"}[f.IntN(3)]})
		m.body = [][]byte{[]byte("{"), []byte(`{"specversion":"1.0","id":7}`), []byte("[]"), []byte("null"), {}}[f.IntN(5)]
		return []rawMessage{m}
	}},
}

func (f *forger) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.Uint32())
	}
	return b
}

// turn changes the type, uid, version or content of a valid event. The event stays valid.
func (f *forger) turn(m *harness.Received) {
	a := m.Attributes
	uid, version := a["uid"], a["resourceversion"]
	if f.IntN(4) == 0 {
		uid = fmt.Sprintf(inventedUIDs+"9000-%012d", f.IntN(1_000_000))
	}
	if number, err := strconv.Atoi(version); err == nil {
		version = fmt.Sprint(max(1, number+[]int{0, 0, -1, -10, 1, 10, 1_000_000}[f.IntN(7)]))
	}
	become(m, []string{"updated", "updated", "deleted", "deleted", "created", "deselected", "snapshot"}[f.IntN(7)], uid, version)
	if f.IntN(2) == 0 {
		tamper(m)
	}
}

// encode returns a message in the format of its bus, without the attributes that are "".
func (f *forger) encode(m harness.Received, event bool) rawMessage {
	raw := rawMessage{subject: m.Subject, topic: m.Topic, where: m.Partition, body: m.Data, event: event}
	prefix, escape := "ce-", escapeHeader
	if f.world.settings.sink == onKafka {
		raw.key, prefix, escape = []byte(m.Attributes["partitionkey"]), "ce_", func(s string) string { return s }
		if m.Topic != "" && m.Subject != "" && m.Sequence != 0 {
			raw.key = []byte(m.Subject)
		}
	}
	if raw.body == nil {
		raw.body = []byte{}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		if value := m.Attributes[name]; name == "datacontenttype" && prefix == "ce_" {
			raw.headers = append(raw.headers, rawHeader{"content-type", value})
		} else if value != "" {
			raw.headers = append(raw.headers, rawHeader{prefix + name, escape(value)})
		}
	}
	return raw
}

// noEvent returns a message that isn't an event, with the subject or key of another message.
func (f *forger) noEvent(m harness.Received) rawMessage {
	raw := f.encode(m, false)
	raw.headers, raw.body = nil, []byte("no event")
	return raw
}

// escapeHeader escapes a value as in the NATS binding of CloudEvents.
func escapeHeader(s string) string {
	var b []byte
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '%' {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}
