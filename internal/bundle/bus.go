package bundle

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// natsFile returns bus.json, which describes the NATS server, the account, the stream, and the
// permissions of the user.
func natsFile(i nats.Inspection) ([]file, error) {
	return busFile(struct {
		Version        string                 `json:"version"`
		MaxPayload     int64                  `json:"maxPayload"`
		Clustered      bool                   `json:"clustered"`
		TLSUntil       time.Time              `json:"tlsUntil,omitzero"`
		JetStreamError string                 `json:"jetStreamError,omitempty"`
		Account        *jetstream.AccountInfo `json:"account,omitempty"`
		Stream         *jetstream.StreamInfo  `json:"stream,omitempty"`
		StreamError    string                 `json:"streamError,omitempty"`
		SettingsError  string                 `json:"settingsError,omitempty"`
		Overlap        string                 `json:"overlap,omitempty"`
		Denied         []string               `json:"denied,omitempty"`
		DeniedError    string                 `json:"deniedError,omitempty"`
		ClaimError     string                 `json:"claimError,omitempty"`
	}{
		i.Version, i.MaxPayload, i.Clustered, i.TLSUntil, text(i.JetStream), i.Account, i.Stream, text(i.StreamErr), text(i.Settings),
		i.Overlap, i.Denied, text(i.DeniedErr), text(i.ClaimErr),
	})
}

// topic describes one topic in bus.json.
type topic struct {
	Name              string   `json:"name"`
	Missing           bool     `json:"missing,omitempty"`
	Partitions        int      `json:"partitions"`
	Replication       int      `json:"replication"`
	InSync            int      `json:"inSync"`
	CleanupPolicy     string   `json:"cleanupPolicy,omitempty"`
	MaxMessageBytes   int      `json:"maxMessageBytes,omitempty"`
	MinInsyncReplicas int      `json:"minInsyncReplicas,omitempty"`
	Unreadable        bool     `json:"settingsUnreadable,omitempty"`
	Denied            []string `json:"denied,omitempty"`
	Error             string   `json:"error,omitempty"`
	SettingsError     string   `json:"settingsError,omitempty"`
	CreateError       string   `json:"createError,omitempty"`
}

// kafkaFile returns bus.json, which describes the topics and the permissions of the user.
func kafkaFile(i kafka.Inspection) ([]file, error) {
	of := func(t kafka.TopicInspection) topic {
		is := t.Topic
		return topic{
			t.Name, t.Missing, is.Partitions, is.Replication, t.InSync, is.CleanupPolicy, is.MaxMessageBytes, is.MinInsyncReplicas,
			t.Unreadable, t.Denied, text(t.Err), text(t.Settings), text(t.Create),
		}
	}
	topics := []topic{}
	for _, t := range i.Topics {
		topics = append(topics, of(t))
	}
	return busFile(struct {
		Brokers    int     `json:"brokers"`
		Topics     []topic `json:"topics"`
		Checkpoint topic   `json:"checkpoint"`
		ClaimError string  `json:"claimError,omitempty"`
	}{i.Brokers, topics, of(i.Checkpoint), text(i.ClaimErr)})
}

func busFile(v any) ([]file, error) {
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, err
	}
	return []file{{"bus.json", append(content, '\n')}}, nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
