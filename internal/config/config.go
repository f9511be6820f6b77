// Package config is the forwarder's configuration: every environment variable,
// once.
//
// [Load] reads the environment. What it returns is complete and consistent as far
// as one can tell without asking the cluster or the bus; whatever is wrong is
// found before anything starts, and all of it at once. Each error names the
// variable, the value and what to write instead, and never shows a secret: those
// come from files, whose contents this package checks but does not keep.
//
// The tags of [Config] are the only place where a variable is described. [Fields]
// gives them as a table, of which the documentation and --help are made.
//
// The package does not connect to anything, and does not tell whether a selected
// resource exists.
package config

import "time"

// Prefix begins the name of every variable.
const Prefix = "KUBERELAY_"

// The values of Event.Sink.
const (
	SinkNATS   = "nats"
	SinkKafka  = "kafka"
	SinkStdout = "stdout"
)

// The values of Watch.OnDeselect.
const (
	OnDeselectKeep    = "keep"
	OnDeselectPublish = "publish"
)

// The values of Content.Data.
const (
	DataObject = "object"
	DataChange = "change"
)

// The values of Operations.LogFormat, which is empty for text on a terminal and
// JSON elsewhere.
const (
	LogJSON = "json"
	LogText = "text"
)

// Config is the configuration by topic. Of a field's tags, envconfig and default
// are those of package envconfig; the others are described at [Field].
type Config struct {
	Watch      Watch      `title:"What is watched"`
	Content    Content    `title:"What is sent" note:"docs/choosing.md has examples, the grammar of paths and the functions of expressions, and says what happens where these change."`
	Event      Event      `title:"Events"`
	NATS       NATS       `title:"NATS JetStream"`
	Server     Server     `title:"Built-in NATS server" note:"It runs inside the forwarder where KUBERELAY_SINK is nats and KUBERELAY_NATS_URL is not set."`
	Kafka      Kafka      `title:"Kafka" note:"Events go there where KUBERELAY_SINK is kafka. Topics that are missing are created; those that exist are checked, never changed."`
	Work       Work       `title:"Pace"`
	Leader     Leader     `title:"Leader election" note:"With it several forwarders run for one cluster: one writes, the others stand by with everything read. They need get, create and update on the Lease."`
	Operations Operations `title:"Operations"`
}

// Watch says what to read from the API server, and how fast.
type Watch struct {
	Resources         List   `envconfig:"KUBERELAY_RESOURCES" required:"true" example:"pods,deployments.apps" desc:"Resources to watch, written as for kubectl: deploy, deployments.apps, deployments.v1.apps, Widget.example.com; *.apps for a whole group, * for all."`
	ExcludeResources  List   `envconfig:"KUBERELAY_EXCLUDE_RESOURCES" unset:"secrets, events and leases, unless KUBERELAY_RESOURCES names them" example:"replicasets.apps" desc:"Resources not to watch although KUBERELAY_RESOURCES selects them, written as there."`
	Namespaces        List   `envconfig:"KUBERELAY_NAMESPACES" unset:"all" example:"default,team-a" desc:"Namespaces to watch. Cluster-scoped resources are watched all the same."`
	ExcludeNamespaces List   `envconfig:"KUBERELAY_EXCLUDE_NAMESPACES" unset:"none" example:"kube-system,kube-node-lease" desc:"Namespaces not to watch although KUBERELAY_NAMESPACES or KUBERELAY_NAMESPACE_SELECTOR selects them."`
	NamespaceSelector string `envconfig:"KUBERELAY_NAMESPACE_SELECTOR" unset:"all namespaces" example:"team in (a,b),!sandbox" desc:"Only namespaces whose labels match, as in kubectl get -l, now and whenever they change. Namespaces have to be readable. What a change of labels leaves out gets an event of type deselected."`
	OnDeselect        string `envconfig:"KUBERELAY_ON_DESELECT" default:"keep" oneof:"keep,publish" desc:"What to do with objects on the bus that the configuration no longer selects, by resources, lists of namespaces, labels or fields: keep leaves them as they are, publish sends an event of type deselected for each."`
	Follow            List   `envconfig:"KUBERELAY_FOLLOW" unset:"none" example:"ownerReferences,machines.cluster.x-k8s.io:spec.infrastructureRef" desc:"Fields that refer to objects, which are then watched too: a path such as involvedObject or spec.template.spec.infrastructureRef, after a resource and a colon if it is of that alone; ownerReferences for owners, whose last is then named in ownerkind and ownername. Excluded resources are not followed, nor those that must be named to be watched."`
	LabelSelector     string `envconfig:"KUBERELAY_LABEL_SELECTOR" unset:"all objects" example:"app=web,tier!=test" desc:"Only objects whose labels match, as in kubectl get -l."`
	FieldSelector     string `envconfig:"KUBERELAY_FIELD_SELECTOR" unset:"all objects" example:"metadata.name=web" desc:"Only objects whose fields match, as in kubectl get --field-selector. Every watched resource must support the fields."`
	QPS               int    `envconfig:"KUBERELAY_KUBE_QPS" default:"100" min:"1" max:"10000" desc:"Requests a second to the API server, on average, for lists and watches, and as many for reads of single objects. A watch is one request, however long it lasts."`
	Burst             int    `envconfig:"KUBERELAY_KUBE_BURST" default:"500" min:"1" max:"10000" desc:"Requests to the API server that may be made at once, counted as KUBERELAY_KUBE_QPS. A start needs one for each resource, and for each namespace that is watched by itself."`
}

// Content says which of the watched objects are sent, and what of them. What the texts
// mean other packages know: see [Check].
type Content struct {
	Filter     string `envconfig:"KUBERELAY_FILTER" unset:"all objects" example:"resource.kind == \"Pod\" ? object.status.phase == \"Failed\" : true" desc:"Only objects for which this expression in CEL is true, of object and of resource with group, version, resource, kind and namespaced. What stops matching gets an event of type deselected. An object for which the expression fails is sent, and counted in kuberelay_filter_errors_total."`
	DropFields Paths  `envconfig:"KUBERELAY_DROP_FIELDS" unset:"none" example:"nodes:.status.conditions[*].lastHeartbeatTime,*:.metadata.annotations[\"example.com/checksum\"]" desc:"Fields that are left out: a resource or *, a colon, and a path as kubectl writes JSONPath. A change of nothing else sends no event. Entries are separated by commas or line breaks."`
	Data       string `envconfig:"KUBERELAY_DATA" default:"object" oneof:"object,change" desc:"Data of an event: the bare object, or object, previous and patch: the object, its state in the event before, and the difference in JSON Patch, the latter two null where that state is not known."`
}

// Event says what an event looks like and where it goes.
type Event struct {
	Sink             string `envconfig:"KUBERELAY_SINK" default:"nats" oneof:"nats,kafka,stdout" desc:"Where events go: to NATS JetStream, to Kafka, or to standard output, one per line."`
	ClusterName      string `envconfig:"KUBERELAY_CLUSTER_NAME" unset:"the UID of namespace kube-system" example:"prod-eu1" desc:"The cluster's name in every event, subject and key. Events under another name are other events."`
	ClusterReplaces  string `envconfig:"KUBERELAY_CLUSTER_REPLACES" unset:"none" example:"2f6a1c52-8e0d-4a3e-9a77-0c1d5b8f4e21" desc:"UID of the namespace kube-system of a cluster that is no more and whose name on the bus this one takes over."`
	ContentMode      string `envconfig:"KUBERELAY_CONTENT_MODE" default:"binary" oneof:"binary,structured" desc:"CloudEvents content mode: attributes in headers and the bare object as data, or all in one JSON document. Standard output is always structured."`
	RedactionKeyFile string `envconfig:"KUBERELAY_REDACTION_KEY_FILE" kind:"secret" unset:"a key made up at each start" desc:"Key of at least 16 bytes for the hashes that stand for the values of Secrets. Set it where Secrets are watched: with another key every value shows as changed."`
}

// NATS says where the stream is and how to publish to it.
type NATS struct {
	URLs          List          `envconfig:"KUBERELAY_NATS_URL" kind:"url" unset:"the built-in server" example:"nats://nats:4222" desc:"NATS servers: nats://, tls://, ws:// or wss://, host and port. No credentials in it: they come from files."`
	Stream        string        `envconfig:"KUBERELAY_NATS_STREAM" default:"KUBERELAY" desc:"Name of the JetStream stream. It is created if missing."`
	SubjectPrefix string        `envconfig:"KUBERELAY_NATS_SUBJECT_PREFIX" default:"kuberelay" desc:"First token of every subject: letters, digits, - and _."`
	Replicas      int           `envconfig:"KUBERELAY_NATS_REPLICAS" default:"1" min:"1" max:"5" desc:"Servers that hold a copy of the stream. The built-in server is one."`
	History       int           `envconfig:"KUBERELAY_NATS_HISTORY" default:"8" min:"1" max:"1000000" desc:"Events kept of each object."`
	User          string        `envconfig:"KUBERELAY_NATS_USER" unset:"none" desc:"User name, together with KUBERELAY_NATS_PASSWORD_FILE."`
	PasswordFile  string        `envconfig:"KUBERELAY_NATS_PASSWORD_FILE" kind:"secret" unset:"none" desc:"Password of KUBERELAY_NATS_USER."`
	TokenFile     string        `envconfig:"KUBERELAY_NATS_TOKEN_FILE" kind:"secret" unset:"none" desc:"Token, instead of user and password."`
	CredsFile     string        `envconfig:"KUBERELAY_NATS_CREDS_FILE" kind:"secret" unset:"none" desc:"Credentials file with user JWT and seed, as nsc writes it."`
	NkeyFile      string        `envconfig:"KUBERELAY_NATS_NKEY_FILE" kind:"secret" unset:"none" desc:"Seed of a user's nkey."`
	CAFile        string        `envconfig:"KUBERELAY_NATS_TLS_CA_FILE" kind:"file" unset:"the system's" desc:"Certificate authorities, in PEM, that the server's certificate is verified with."`
	CertFile      string        `envconfig:"KUBERELAY_NATS_TLS_CERT_FILE" kind:"file" unset:"none" desc:"Client certificate in PEM, together with KUBERELAY_NATS_TLS_KEY_FILE."`
	KeyFile       string        `envconfig:"KUBERELAY_NATS_TLS_KEY_FILE" kind:"secret" unset:"none" desc:"Key of the client certificate, in PEM."`
	MaxInFlight   int           `envconfig:"KUBERELAY_NATS_MAX_IN_FLIGHT" default:"512" min:"1" max:"65536" desc:"Events that may await their acknowledgement at once, each of another object; at most half of them are of a first sync or a resync."`
	AckTimeout    time.Duration `envconfig:"KUBERELAY_NATS_ACK_TIMEOUT" default:"5s" min:"100ms" max:"5m" desc:"How long an acknowledgement is waited for before the event is tried again."`
}

// Server says how the built-in NATS server runs.
type Server struct {
	Listen  string `envconfig:"KUBERELAY_NATS_LISTEN" kind:"address" default:"127.0.0.1:4222" desc:"Where subscribers reach the built-in server. It asks for no credentials: whoever reaches it can read and write."`
	DataDir string `envconfig:"KUBERELAY_DATA_DIR" unset:"$XDG_DATA_HOME/kuberelay or ~/.local/share/kuberelay" example:"/var/lib/kuberelay" desc:"Folder for the built-in server's files."`
}

// Kafka says where the topics are and how to publish to them.
type Kafka struct {
	Brokers         List          `envconfig:"KUBERELAY_KAFKA_BROKERS" kind:"brokers" unset:"none; needed where KUBERELAY_SINK is kafka" example:"kafka-0:9092,kafka-1:9092" desc:"Brokers to ask for the others: host:port, or host for port 9092. No credentials in it: they come from files."`
	Topic           string        `envconfig:"KUBERELAY_KAFKA_TOPIC" default:"kuberelay" desc:"Topic of the events. With {resource}, and {group}, in it each resource has a topic of its own, such as kuberelay.{group}.{resource}; the core group is written core."`
	CheckpointTopic string        `envconfig:"KUBERELAY_KAFKA_CHECKPOINT_TOPIC" unset:"the topic's name and .checkpoint" example:"kuberelay.checkpoint" desc:"Compacted topic of what has been acknowledged, for the forwarder alone."`
	Partitions      int           `envconfig:"KUBERELAY_KAFKA_PARTITIONS" default:"3" min:"1" max:"65535" desc:"Partitions of a topic that is created."`
	Replication     int           `envconfig:"KUBERELAY_KAFKA_REPLICATION" default:"-1" min:"-1" max:"32767" desc:"Brokers that hold a copy of a topic that is created; -1 for the brokers' own default."`
	CleanupPolicy   string        `envconfig:"KUBERELAY_KAFKA_CLEANUP_POLICY" default:"compact" oneof:"compact,delete" desc:"What the brokers may remove from event topics: compact keeps the last event of each object and, for a while, those before it; delete keeps all, as retention.ms and retention.bytes must be -1."`
	Tombstones      bool          `envconfig:"KUBERELAY_KAFKA_TOMBSTONES" default:"false" desc:"Let a record without a value follow the delete of an object after KUBERELAY_DELETE_RETENTION, so that compaction removes the object's last event too."`
	Compression     string        `envconfig:"KUBERELAY_KAFKA_COMPRESSION" default:"zstd" oneof:"none,gzip,snappy,lz4,zstd" desc:"Compression of batches."`
	Idempotent      bool          `envconfig:"KUBERELAY_KAFKA_IDEMPOTENT" default:"true" desc:"Every event is stored once, and brokers refuse a forwarder that another has replaced. With false, for clusters that forbid it, events may be repeated with the same ids, and two forwarders at once are not noticed."`
	TransactionalID string        `envconfig:"KUBERELAY_KAFKA_TRANSACTIONAL_ID" unset:"kuberelay.<cluster>" example:"kuberelay.prod-eu1" desc:"Transactional id by which brokers tell forwarders of one cluster apart. There are no transactions."`
	TLS             bool          `envconfig:"KUBERELAY_KAFKA_TLS" default:"false" desc:"Speak TLS to the brokers and verify their certificates."`
	CAFile          string        `envconfig:"KUBERELAY_KAFKA_TLS_CA_FILE" kind:"file" unset:"the system's" desc:"Certificate authorities, in PEM, that the brokers' certificates are verified with."`
	CertFile        string        `envconfig:"KUBERELAY_KAFKA_TLS_CERT_FILE" kind:"file" unset:"none" desc:"Client certificate in PEM, together with KUBERELAY_KAFKA_TLS_KEY_FILE."`
	KeyFile         string        `envconfig:"KUBERELAY_KAFKA_TLS_KEY_FILE" kind:"secret" unset:"none" desc:"Key of the client certificate, in PEM."`
	SASLMechanism   string        `envconfig:"KUBERELAY_KAFKA_SASL_MECHANISM" oneof:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" unset:"none" desc:"How to log in with KUBERELAY_KAFKA_USER and KUBERELAY_KAFKA_PASSWORD_FILE."`
	User            string        `envconfig:"KUBERELAY_KAFKA_USER" unset:"none" desc:"User name, together with KUBERELAY_KAFKA_PASSWORD_FILE."`
	PasswordFile    string        `envconfig:"KUBERELAY_KAFKA_PASSWORD_FILE" kind:"secret" unset:"none" desc:"Password of KUBERELAY_KAFKA_USER."`
	MaxInFlight     int           `envconfig:"KUBERELAY_KAFKA_MAX_IN_FLIGHT" default:"2048" min:"1" max:"65536" desc:"Events that may await their acknowledgement at once, each of another object; at most an eighth of them are of a first sync or a resync."`
	AckTimeout      time.Duration `envconfig:"KUBERELAY_KAFKA_ACK_TIMEOUT" default:"10s" min:"100ms" max:"5m" desc:"How long an acknowledgement is waited for before the event is tried again."`
	BatchBytes      int           `envconfig:"KUBERELAY_KAFKA_BATCH_BYTES" default:"1048576" min:"1024" max:"104857600" desc:"Bytes of events that go into one batch, before compression. A larger event is a batch of its own."`
}

// Work says how hard to work, how often to look again, and how long to wait.
type Work struct {
	Workers           int           `envconfig:"KUBERELAY_WORKERS" default:"4" min:"1" max:"1024" desc:"Objects worked on at once. Waiting for an acknowledgement is not work."`
	ResyncPeriod      time.Duration `envconfig:"KUBERELAY_RESYNC_PERIOD" default:"10m" min:"1s" desc:"How often every object is compared with what the bus has acknowledged. It costs the API server nothing."`
	CheckpointRefresh time.Duration `envconfig:"KUBERELAY_CHECKPOINT_REFRESH" default:"10m" min:"1s" desc:"How often it is read back from the bus what the bus holds, so that what it lost is written again."`
	DeleteRetention   time.Duration `envconfig:"KUBERELAY_DELETE_RETENTION" default:"24h" min:"1s" desc:"How long the events of a deleted object stay. A subscriber that is away for longer may miss the delete. On Kafka see KUBERELAY_KAFKA_TOMBSTONES."`
	RetryBaseDelay    time.Duration `envconfig:"KUBERELAY_RETRY_BASE_DELAY" default:"50ms" min:"1ms" desc:"Wait after the first failure to publish an object; it doubles with each."`
	RetryMaxDelay     time.Duration `envconfig:"KUBERELAY_RETRY_MAX_DELAY" default:"30s" min:"1ms" desc:"Longest wait between two tries. There is no limit to their number."`
	DrainTimeout      time.Duration `envconfig:"KUBERELAY_DRAIN_TIMEOUT" default:"20s" min:"0s" desc:"How long outstanding acknowledgements are waited for on SIGTERM. Keep it below the pod's terminationGracePeriodSeconds."`
}

// Leader says how several forwarders agree on who writes.
type Leader struct {
	Election      bool          `envconfig:"KUBERELAY_LEADER_ELECTION" default:"false" desc:"Write only while holding a Lease, and stand by until then. Not with the built-in server, which is each process's own."`
	LeaseName     string        `envconfig:"KUBERELAY_LEASE_NAME" default:"kuberelay" desc:"Name of the Lease. Forwarders that publish under the same cluster's name need the same one, all others another."`
	Namespace     string        `envconfig:"KUBERELAY_LEASE_NAMESPACE" unset:"the pod's, or that of the kubeconfig's context" example:"kuberelay" desc:"Namespace of the Lease."`
	LeaseDuration time.Duration `envconfig:"KUBERELAY_LEASE_DURATION" default:"15s" min:"1s" max:"1h" desc:"How long the others wait after the last renewal before one of them leads, in whole seconds: so long nothing is published after a leader was killed."`
	RenewDeadline time.Duration `envconfig:"KUBERELAY_LEASE_RENEW_DEADLINE" default:"10s" min:"100ms" desc:"How long a leader that cannot renew the Lease goes on trying. Then it stands by; it publishes nothing for longer than this and KUBERELAY_LEASE_RETRY_PERIOD after a renewal."`
	RetryPeriod   time.Duration `envconfig:"KUBERELAY_LEASE_RETRY_PERIOD" default:"2s" min:"100ms" desc:"How often a leader renews the Lease. The others look about twice as often whether it is free."`
}

// Operations says how the forwarder is observed.
type Operations struct {
	ListenAddr string `envconfig:"KUBERELAY_LISTEN_ADDR" kind:"address" default:":8080" desc:"Where /metrics, /healthz and /readyz are served."`
	LogLevel   string `envconfig:"KUBERELAY_LOG_LEVEL" default:"info" oneof:"debug,info,warn,error" desc:"Least level to log."`
	LogFormat  string `envconfig:"KUBERELAY_LOG_FORMAT" oneof:"json,text" unset:"json; text on a terminal" desc:"Form of the log on standard error."`
	Profiles   bool   `envconfig:"KUBERELAY_PPROF" default:"false" desc:"Serve profiles of the process at /debug/pprof/ on KUBERELAY_LISTEN_ADDR, for go tool pprof. They show no object's content, but whoever asks for one makes the forwarder work."`
}

// UnlessNamed lists the resources that a wildcard in Watch.Resources does not
// select, whatever Watch.ExcludeResources says: Secrets because of what they
// hold, events and leases because they change all the time.
func UnlessNamed() []string {
	return []string{"secrets", "events", "events.events.k8s.io", "leases.coordination.k8s.io"}
}
