// Package sinks converts the settings of a forwarder into options to write to its bus, and to read the
// bus as a subscriber. It also inspects the bus.
//
// The package guarantees that the forwarder and the commands use the same bus if they have the same
// settings. It never writes to a bus. It doesn't check the settings: package config does.
package sinks

import (
	"cmp"
	"context"
	"errors"
	"net"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/deadline"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
)

// StoreDir returns the directory in which the built-in NATS server stores its files.
func StoreDir(s config.Server) string { return filepath.Join(s.DataDir, "nats") }

func connection(cfg config.Config) nats.Connection {
	n := cfg.NATS
	return nats.Connection{
		URLs: n.URLs, Stream: n.Stream, SubjectPrefix: n.SubjectPrefix, Cluster: cfg.Event.ClusterName,
		User: n.User, PasswordFile: n.PasswordFile, TokenFile: n.TokenFile, CredsFile: n.CredsFile, NkeyFile: n.NkeyFile,
		CAFile: n.CAFile, CertFile: n.CertFile, KeyFile: n.KeyFile, ServerName: n.ServerName, Domain: n.Domain,
		AckTimeout: n.AckTimeout,
	}
}

// NATS returns the options for writing to the stream, without a logger.
func NATS(cfg config.Config) nats.Options {
	return nats.Options{
		Connection: connection(cfg), Replicas: cfg.NATS.Replicas, History: cfg.NATS.History,
		ContentMode: nats.ContentMode(cfg.Event.ContentMode), MaxInFlight: cfg.NATS.MaxInFlight,
	}
}

// Kafka returns the options for writing to the topics, without a logger.
func Kafka(cfg config.Config) (kafka.Options, error) {
	k := cfg.Kafka
	compression, err := recordbatch.ParseCompression(k.Compression)
	return kafka.Options{
		Broker: brokerOptions(k), Topic: k.Topic, CheckpointTopic: k.CheckpointTopic,
		Partitions: k.Partitions, Replication: k.Replication, CleanupPolicy: k.CleanupPolicy, Tombstones: k.Tombstones,
		ContentMode: kafka.ContentMode(cfg.Event.ContentMode), Compression: compression,
		Idempotent: k.Idempotent, TransactionalID: k.TransactionalID,
		AckTimeout: k.AckTimeout, MaxInFlight: k.MaxInFlight, BatchBytes: k.BatchBytes,
	}, err
}

func brokerOptions(k config.Kafka) broker.Options {
	return broker.Options{
		Addrs: k.Brokers, TLS: k.TLS, CAFile: k.CAFile, CertFile: k.CertFile, KeyFile: k.KeyFile, ServerName: k.ServerName,
		SASLMechanism: k.SASLMechanism, User: k.User, PasswordFile: k.PasswordFile, AWSRegion: k.AWSRegion,
		OAuth: broker.OAuth{
			TokenFile: k.TokenFile, TokenURL: k.TokenURL, ClientID: k.ClientID, SecretFile: k.SecretFile,
			Scopes: k.Scopes, Audience: k.Audience, CAFile: k.OAuthCAFile,
		},
	}
}

// NATSReader returns the options for reading the stream, without a logger. Without KUBERELAY_NATS_URL,
// the options connect to the built-in server of a forwarder on this machine.
func NATSReader(cfg config.Config) (natsreader.Options, error) {
	o := connection(cfg)
	if len(o.URLs) > 0 {
		return o, nil
	}
	host, port, err := net.SplitHostPort(cfg.Server.Listen)
	if err != nil {
		return o, err
	}
	if port == "0" {
		return o, errors.New("KUBERELAY_NATS_LISTEN has port 0, which means any port: name the server in KUBERELAY_NATS_URL")
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
		o.TokenFile, o.TokenOptional = natsserver.TokenFile(StoreDir(cfg.Server)), true
	}
	return o, nil
}

// KafkaReader returns the options for reading the topics, without a logger.
func KafkaReader(cfg config.Config) reader.Options {
	k := cfg.Kafka
	return reader.Options{
		Broker: brokerOptions(k), Topic: k.Topic, CheckpointTopic: cmp.Or(k.CheckpointTopic, kafka.DefaultCheckpointTopic(k.Topic)),
		Cluster: cfg.Event.ClusterName,
	}
}

// InspectNATS inspects the server and the stream. Without KUBERELAY_NATS_URL, it inspects the built-in
// server of a forwarder on this machine, with the permissions of a subscriber. It returns when ctx ends, even
// if the client library ignores ctx.
func InspectNATS(ctx context.Context, cfg config.Config) (nats.Inspection, error) {
	o := NATS(cfg).WithDefaults()
	connection := o.Connection
	if len(cfg.NATS.URLs) == 0 {
		var err error
		if connection, err = NATSReader(cfg); err != nil {
			return nats.Inspection{}, err
		}
	}
	return deadline.Run(ctx, func(ctx context.Context) (nats.Inspection, error) {
		if end, ok := ctx.Deadline(); ok { // leave time to report why it can't connect
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, end.Add(-time.Until(end)/10))
			defer cancel()
		}
		return nats.Inspect(ctx, connection, o)
	})
}

// InspectKafka inspects the topics of a forwarder that watches these resources.
func InspectKafka(ctx context.Context, cfg config.Config, resources []schema.GroupResource) (kafka.Inspection, error) {
	o, err := Kafka(cfg)
	if err != nil {
		return kafka.Inspection{}, err
	}
	o.Cluster = cfg.Event.ClusterName
	return kafka.Inspect(ctx, o, resources)
}

// LastClaim reads the claim of the cluster name in the settings. It returns the zero value if the bus has
// no claim.
func LastClaim(ctx context.Context, cfg config.Config) (event.Claim, error) {
	if cfg.Event.Sink == config.SinkKafka {
		i, err := InspectKafka(ctx, cfg, nil)
		return i.Claim, cmp.Or(err, i.ClaimErr)
	}
	i, err := InspectNATS(ctx, cfg)
	return i.Claim, cmp.Or(err, i.ClaimErr)
}
