package main

import (
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// openKafka begins to connect to the brokers and to take over as the writer.
func openKafka(cfg config.Config, c *claim, permit func() error, log *slog.Logger, r prometheus.Registerer) (*bus, error) {
	o, err := kafkaOptions(cfg, c.name, log, r)
	if err != nil {
		return nil, err
	}
	o.Admit, o.Permit = c.admitToKafka, permit
	kb, err := kafka.Open(o)
	if err != nil {
		return nil, err
	}
	b := &bus{}
	b.keep(kb)
	return b, nil
}

func kafkaOptions(cfg config.Config, clusterName string, log *slog.Logger, r prometheus.Registerer) (kafka.Options, error) {
	k := cfg.Kafka
	compression, err := recordbatch.ParseCompression(k.Compression)
	return kafka.Options{
		Broker: brokerOptions(k, log), Cluster: clusterName, Topic: k.Topic, CheckpointTopic: k.CheckpointTopic,
		Partitions: k.Partitions, Replication: k.Replication, CleanupPolicy: k.CleanupPolicy, Tombstones: k.Tombstones,
		ContentMode: kafka.ContentMode(cfg.Event.ContentMode), Compression: compression,
		Idempotent: k.Idempotent, TransactionalID: k.TransactionalID, Writer: writer(os.Getenv),
		AckTimeout: k.AckTimeout, MaxInFlight: k.MaxInFlight, BatchBytes: k.BatchBytes, Logger: log, Registerer: r,
	}, err
}

func brokerOptions(k config.Kafka, log *slog.Logger) broker.Options {
	return broker.Options{
		Addrs: k.Brokers, TLS: k.TLS, CAFile: k.CAFile, CertFile: k.CertFile, KeyFile: k.KeyFile,
		SASLMechanism: k.SASLMechanism, User: k.User, PasswordFile: k.PasswordFile, Logger: log,
	}
}

// readerOptions are for tail and verify.
func readerOptions(cfg config.Config, log *slog.Logger) reader.Options {
	checkpoint := cfg.Kafka.CheckpointTopic
	if checkpoint == "" {
		checkpoint = kafka.DefaultCheckpointTopic(cfg.Kafka.Topic)
	}
	return reader.Options{
		Broker: brokerOptions(cfg.Kafka, log), Topic: cfg.Kafka.Topic, CheckpointTopic: checkpoint, Cluster: cfg.Event.ClusterName, Logger: log,
	}
}

// writer says who we are to whoever finds that we have taken over: the pod, where its
// specification says which it is. Empty is for the host's name.
func writer(getenv func(string) string) string {
	namespace, name := getenv("POD_NAMESPACE"), getenv("POD_NAME")
	if namespace != "" && name != "" {
		return namespace + "/" + name
	}
	return name
}
