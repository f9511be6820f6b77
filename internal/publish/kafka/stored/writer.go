package stored

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// Writer is a forwarder that took over the topics of a cluster.
type Writer struct {
	Name  string // name of its pod or host
	Since string // time of the takeover, in the format of the attribute time
}

// LastWriter returns the writer that took over last, or the zero value if there is none.
func (s *Reader) LastWriter(ctx context.Context) (last Writer, err error) {
	offsets, err := s.client.Offsets(ctx, s.checkpoint)
	if err != nil || len(offsets.End) == 0 {
		return Writer{}, err
	}
	writerKey := event.WriterPartitionKey(s.cluster, s.checkpoint, 0)
	err = s.Read(ctx, s.checkpoint, 0, 0, offsets.End[0], func(r broker.Record) error {
		if string(r.Key) == writerKey {
			if m, err := binding.Decode(r.Headers, r.Value); err == nil {
				last = Writer{Name: fmt.Sprintf("%.253s", writerOf(m)), Since: fmt.Sprintf("%.40s", m.Attribute("time"))}
			}
		}
		return nil
	})
	return last, err
}

// writerOf returns the writer of a marker.
func writerOf(m *event.Message) string {
	var data struct{ Writer string }
	if err := json.Unmarshal(m.Data, &data); err != nil || data.Writer == "" {
		return "unknown"
	}
	return data.Writer
}
