package relay

import (
	"errors"
	"net"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
)

// NATSReaderOptions returns the options for reading the stream of a Relay with these settings
// from another process, without a logger. Without KUBERELAY_NATS_URL this is the built-in
// server of a Relay on this machine.
func NATSReaderOptions(cfg config.Config) (natsreader.Options, error) {
	n := cfg.NATS
	o := natsreader.Options{
		URLs: n.URLs, Stream: n.Stream, SubjectPrefix: n.SubjectPrefix, Cluster: cfg.Event.ClusterName,
		User: n.User, PasswordFile: n.PasswordFile, TokenFile: n.TokenFile, CredsFile: n.CredsFile, NkeyFile: n.NkeyFile,
		CAFile: n.CAFile, CertFile: n.CertFile, KeyFile: n.KeyFile, AckTimeout: n.AckTimeout,
	}
	if len(o.URLs) > 0 {
		return o, nil
	}
	host, port, err := net.SplitHostPort(cfg.Server.Listen)
	if err != nil {
		return o, err
	}
	if port == "0" {
		return o, errors.New("KUBERELAY_NATS_LISTEN has port 0, which stands for any: name the server in KUBERELAY_NATS_URL")
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip.Equal(net.IPv6unspecified):
		host = "::1"
	}
	scheme := "nats://"
	if cfg.Server.CertFile != "" {
		scheme = "tls://"
	}
	o.URLs = []string{scheme + net.JoinHostPort(host, port)}
	if o.PasswordFile == "" && o.TokenFile == "" {
		o.TokenFile, o.TokenOptional = natsserver.TokenFile(storeDir(cfg.Server)), true
	}
	return o, nil
}

// KafkaReaderOptions returns the options for reading the topics of a Relay with these
// settings, without a logger.
func KafkaReaderOptions(cfg config.Config) reader.Options {
	checkpoint := cfg.Kafka.CheckpointTopic
	if checkpoint == "" {
		checkpoint = kafka.DefaultCheckpointTopic(cfg.Kafka.Topic)
	}
	return reader.Options{
		Broker: brokerOptions(cfg.Kafka), Topic: cfg.Kafka.Topic, CheckpointTopic: checkpoint, Cluster: cfg.Event.ClusterName,
	}
}
