package replica

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	kafkareader "github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
)

// NATSOptions configures [NATS]. Only URLs is required. Log messages name the
// environment variables that set the same options of a forwarder.
type NATSOptions struct {
	URLs          []string // without credentials
	Stream        string   // "KUBERELAY" if empty
	SubjectPrefix string   // "kuberelay" if empty

	// At most one kind of credentials. The files are read again at each reconnect.
	User         string // with PasswordFile
	PasswordFile string
	TokenFile    string // the built-in server writes its token to nats/token in KUBERELAY_DATA_DIR
	CredsFile    string // a JWT and its seed, as nsc writes them
	NkeyFile     string // the seed of a user

	// TLS, in PEM files. A server that requires TLS gets it even if none of these is set, and
	// is verified with the authorities of the system.
	CAFile   string
	CertFile string // with KeyFile
	KeyFile  string
	// ServerName is the name that the certificate of the server must have; the host of the URL
	// if empty. It requires TLS.
	ServerName string

	Domain string // the JetStream domain of the stream; the server's own if empty

	Logger *slog.Logger // none if nil
}

// KafkaOptions configures [Kafka]. Only Brokers is required. Log messages name the
// environment variables that set the same options of a forwarder.
type KafkaOptions struct {
	Brokers []string // as host:port, or host for port 9092
	Topic   string   // as KUBERELAY_KAFKA_TOPIC, with {group} and {resource} if it has them; "kuberelay" if empty

	TLS      bool
	CAFile   string // PEM; the authorities of the system if empty
	CertFile string // PEM, with KeyFile
	KeyFile  string
	// ServerName is the name that the certificates of all brokers must have; the host of each
	// broker if empty.
	ServerName string

	SASLMechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM, or "" for none
	User          string
	PasswordFile  string
	OAuth         KafkaOAuth // of OAUTHBEARER
	// AWSRegion is the region of AWS_MSK_IAM; if empty, that in the names of the brokers, or of the AWS
	// configuration.
	AWSRegion string

	ClientID string // for the logs and quotas of the brokers; "kuberelay" if empty

	Logger *slog.Logger // none if nil
}

// KafkaOAuth says where the tokens of OAUTHBEARER come from: TokenFile, or TokenURL with the others,
// which is a token endpoint for client credentials.
type KafkaOAuth struct {
	TokenFile string

	TokenURL   string
	ClientID   string
	SecretFile string
	Scopes     []string
	Audience   string // not sent if empty
	CAFile     string // PEM, of the endpoint; the authorities of the system if empty
}

// Bus is a bus to read. It is safe for concurrent use.
type Bus struct {
	reader  func(gr schema.GroupResource, cluster string) (r reader, release func() error, err error)
	filters func(gr schema.GroupResource, cluster, namespace string) []string // nil if the bus has none
	open    context.Context                                                   // ends with the bus
	close   func() error
	log     *slog.Logger
}

func newBus(b Bus) *Bus {
	var end func()
	b.open, end = context.WithCancel(context.Background())
	closed := b.close
	b.close = func() error { end(); return closed() }
	b.log = cmp.Or(b.log, slog.New(slog.DiscardHandler))
	return &b
}

// reader is a reader of either bus.
type reader interface {
	Subscribe(context.Context, publish.SubscribeOptions, func(*event.Message, publish.Delivery) error) error
}

var _, _ reader = (*natsreader.Bus)(nil), (*kafkareader.Bus)(nil)

// NATS connects to NATS. A server that is unreachable is not an error: lists and watches wait
// for it. Options that cannot work are: a malformed URL, an unreadable file, rejected
// credentials. ctx bounds only the call.
func NATS(ctx context.Context, o NATSOptions) (*Bus, error) {
	b, err := natsreader.Connect(ctx, natsreader.Options{
		URLs: o.URLs, Stream: o.Stream, SubjectPrefix: o.SubjectPrefix,
		User: o.User, PasswordFile: o.PasswordFile, TokenFile: o.TokenFile, CredsFile: o.CredsFile, NkeyFile: o.NkeyFile,
		CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, ServerName: o.ServerName, Domain: o.Domain, Logger: o.Logger,
	})
	if err != nil {
		return nil, named(err)
	}
	prefix := cmp.Or(o.SubjectPrefix, "kuberelay")
	return newBus(Bus{
		reader: func(schema.GroupResource, string) (reader, func() error, error) {
			return b, func() error { return nil }, nil
		},
		filters: func(gr schema.GroupResource, cluster, namespace string) []string {
			return subjects(prefix, cluster, gr, namespace)
		},
		close: b.Close,
		log:   o.Logger,
	}), nil
}

// Kafka returns a Bus without connecting. It returns an error only for options that cannot
// work. Kafka has no subjects: each ListerWatcher reads the whole topic of its resource, which
// is one topic for all resources unless KUBERELAY_KAFKA_TOPIC has {resource} in it.
func Kafka(o KafkaOptions) (*Bus, error) {
	k := kafka{
		Topic: cmp.Or(o.Topic, "kuberelay"), Logger: o.Logger,
		Broker: broker.Options{
			Addrs: o.Brokers, TLS: o.TLS, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, ServerName: o.ServerName,
			SASLMechanism: o.SASLMechanism, User: o.User, PasswordFile: o.PasswordFile, AWSRegion: o.AWSRegion, ClientID: o.ClientID, Logger: o.Logger,
			OAuth: broker.OAuth{
				TokenFile: o.OAuth.TokenFile, TokenURL: o.OAuth.TokenURL, ClientID: o.OAuth.ClientID, SecretFile: o.OAuth.SecretFile,
				Scopes: o.OAuth.Scopes, Audience: o.OAuth.Audience, CAFile: o.OAuth.CAFile,
			},
		},
	}
	_, release, err := k.reader(schema.GroupResource{}, "") // checks the options
	if err != nil {
		return nil, named(err)
	}
	return newBus(Bus{reader: k.reader, close: release, log: o.Logger}), nil
}

// Close closes the connections to the bus, which ends lists and watches. It is idempotent.
func (b *Bus) Close() error { return b.close() }

type kafka kafkareader.Options

// reader opens a reader. Each list and watch has its own, because a reader that waits for one
// consumer holds back the others.
func (k kafka) reader(gr schema.GroupResource, cluster string) (reader, func() error, error) {
	o := kafkareader.Options(k)
	o.Cluster = cluster
	if gr.Resource != "" {
		o.Topic = strings.NewReplacer("{group}", cmp.Or(gr.Group, "core"), "{resource}", gr.Resource).Replace(o.Topic)
	}
	r, err := kafkareader.Open(o)
	if err != nil {
		return nil, nil, err
	}
	return r, r.Close, nil
}

// subjects returns the subjects of the objects of a resource, of its markers and of its
// consistency points. Cluster and namespace may be empty.
func subjects(prefix, cluster string, gr schema.GroupResource, namespace string) []string {
	key := event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: namespace}
	object := strings.Split(event.Subject(prefix, cluster, key), ".")
	marker := strings.Split(event.MarkerSubject(prefix, cluster, gr), ".")
	point := strings.Split(event.ResolvedSubject(prefix, cluster, gr), ".")
	if cluster == "" {
		object[1], marker[1], point[1] = "*", "*", "*"
	}
	if namespace == "" {
		object = append(object[:4], ">")
	} else {
		object[5] = "*"
	}
	return []string{strings.Join(object, "."), strings.Join(marker, "."), strings.Join(point, ".")}
}
