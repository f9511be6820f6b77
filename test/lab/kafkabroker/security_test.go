package kafkabroker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

func TestSecurity(t *testing.T) {
	ca, other := tlstest.NewCA(t), tlstest.NewCA(t)
	server := kafkabroker.TLS{CAFile: ca.File}
	_, server.CertFile, server.KeyFile = ca.Issue("broker")
	b := kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners:  []kafkabroker.Listener{kafkabroker.SASLPlaintext, kafkabroker.SSL, kafkabroker.SASLSSL},
		Users:      map[string]string{"writer": "secret", "stranger": "geheim"},
		TLS:        server,
		Authorize:  true,
		SuperUsers: []string{"certified"},
	})
	topic := kafkabrokertest.Topic(t, b, "security", 1, nil)
	// kafka-go reports that a topic is missing if the user may not describe it.
	allow(t, b, "*", topic, kafka.ACLOperationTypeDescribe)
	allow(t, b, "writer", topic, kafka.ACLOperationTypeWrite)

	password := func(name, secret string) sasl.Mechanism { return plain.Mechanism{Username: name, Password: secret} }
	salted := func(algorithm scram.Algorithm, name, secret string) sasl.Mechanism {
		t.Helper()
		m, err := scram.Mechanism(algorithm, name, secret)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	certified, _, _ := ca.Issue("certified")
	unknown, _, _ := ca.Issue("unknown")
	foreign, _, _ := other.Issue("certified")

	// kafka-go has no specific error for a failed connection.
	noConnection := errors.New("no connection")
	for _, test := range []struct {
		name      string
		listener  kafkabroker.Listener
		transport *kafka.Transport
		want      error
	}{
		{"anonymous may do everything", kafkabroker.Plaintext, &kafka.Transport{}, nil},
		{"PLAIN", kafkabroker.SASLPlaintext, &kafka.Transport{SASL: password("writer", "secret")}, nil},
		{"PLAIN with TLS", kafkabroker.SASLSSL, &kafka.Transport{SASL: password("writer", "secret"), TLS: ca.Config()}, nil},
		{"SCRAM-SHA-256", kafkabroker.SASLPlaintext, &kafka.Transport{SASL: salted(scram.SHA256, "writer", "secret")}, nil},
		{"SCRAM-SHA-512 with TLS", kafkabroker.SASLSSL,
			&kafka.Transport{SASL: salted(scram.SHA512, "writer", "secret"), TLS: ca.Config()}, nil},
		{"wrong password", kafkabroker.SASLSSL,
			&kafka.Transport{SASL: salted(scram.SHA512, "writer", "wrong"), TLS: ca.Config()}, noConnection},
		{"no login", kafkabroker.SASLPlaintext, &kafka.Transport{}, noConnection},
		{"no ACL", kafkabroker.SASLPlaintext, &kafka.Transport{SASL: password("stranger", "geheim")}, kafka.TopicAuthorizationFailed},
		{"broker of another authority", kafkabroker.SASLSSL,
			&kafka.Transport{SASL: password("writer", "secret"), TLS: other.Config()}, noConnection},
		{"certificate", kafkabroker.SSL, &kafka.Transport{TLS: ca.Config(certified)}, nil},
		{"certificate without ACL", kafkabroker.SSL, &kafka.Transport{TLS: ca.Config(unknown)}, kafka.TopicAuthorizationFailed},
		{"no certificate", kafkabroker.SSL, &kafka.Transport{TLS: ca.Config()}, noConnection},
		{"certificate of another authority", kafkabroker.SSL, &kafka.Transport{TLS: ca.Config(foreign)}, noConnection},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := produce(ctx, b.AddrOf(test.listener), topic, test.name, test.transport)
			refused := err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, kafka.TopicAuthorizationFailed)
			if errors.Is(test.want, noConnection) && refused {
				return
			}
			if !errors.Is(err, test.want) {
				t.Errorf("got error %v, want %v", err, test.want)
			}
		})
	}
}

// allow grants the user the operation on the topic and waits until the broker applies the ACL.
func allow(t *testing.T, b *kafkabrokertest.Broker, user, topic string, operation kafka.ACLOperationType) {
	t.Helper()
	transport := new(kafka.Transport)
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(b.Addr()), Transport: transport}
	response, err := client.CreateACLs(t.Context(), &kafka.CreateACLsRequest{ACLs: []kafka.ACLEntry{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ResourcePatternType: kafka.PatternTypeLiteral,
		Principal: "User:" + user, Host: "*", Operation: operation, PermissionType: kafka.ACLPermissionTypeAllow,
	}}})
	if err == nil {
		err = errors.Join(response.Errors...)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for { // the broker responds before it applies an ACL
		known, err := client.DescribeACLs(ctx, &kafka.DescribeACLsRequest{Filter: kafka.ACLFilter{
			ResourceTypeFilter: kafka.ResourceTypeTopic, ResourceNameFilter: topic, ResourcePatternTypeFilter: kafka.PatternTypeLiteral,
			Operation: operation, PermissionType: kafka.ACLPermissionTypeAllow,
		}})
		if err != nil {
			t.Fatal(err)
		}
		if len(known.Resources) > 0 {
			return
		}
	}
}
