package kafkabroker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
)

// A Listener is the name of one of the broker's listeners.
type Listener string

// The listeners of a broker. Every broker has Plaintext, whose clients are the user ANONYMOUS.
const (
	Plaintext     Listener = "PLAINTEXT"
	SASLPlaintext Listener = "SASL_PLAINTEXT"
	SSL           Listener = "SSL"
	Proxied       Listener = "PROXIED"     // plaintext, with another advertised address: see Options.Advertise
	ProxiedToo    Listener = "PROXIED_TOO" // a second proxied listener
	SASLSSL       Listener = "SASL_SSL"

	Replication Listener = "REPLICATION" // for other brokers: see Options.Host
	Controller  Listener = "CONTROLLER"  // for brokers and controllers
)

// Options configure a broker. The zero value is a broker with a plaintext listener and a temporary
// directory.
type Options struct {
	// Dir is the directory for the broker's data, configuration and log. Start creates it if necessary
	// and reuses the data of an earlier broker. Close doesn't remove it. Without Dir, the broker has
	// a temporary directory, which Close removes.
	Dir string
	// Listeners are additional listeners, each on its own port.
	Listeners []Listener
	// Advertise returns the address that the broker advertises to the clients of a proxied listener.
	// Each start calls it.
	Advertise func(addr string) string
	// Users are the users of the SASL listeners with their passwords, for PLAIN, SCRAM-SHA-256 and
	// SCRAM-SHA-512. SCRAM users are part of the data: an existing Dir keeps the SCRAM users from
	// its creation.
	Users map[string]string
	// TLS is required for the SSL listeners.
	TLS TLS
	// Authorize makes the broker deny every operation that no ACL allows, except for ANONYMOUS and
	// SuperUsers. Without Authorize, the broker allows everything.
	Authorize  bool
	SuperUsers []string
	// Properties are added to the broker's server.properties and override the package's own
	// settings.
	Properties map[string]string
	// SystemProperties are the system properties of the broker's Java process.
	SystemProperties map[string]string
	// Join makes the broker join the cluster of another broker, which must be running. The first
	// broker of a cluster is the cluster's only controller. Close it last.
	Join *Broker
	// NodeID is the node id of a broker that joins, at least 2. Without Join, the node id is 1.
	NodeID int
	// ControllerOnly starts a controller without a broker. It has only the listener Controller.
	ControllerOnly bool
	// Host is the name by which the other nodes of the cluster reach the listeners Controller and
	// Replication. The Hosts of each other node can resolve the name to the address of a proxy. A
	// broker with a Host has the listener Replication. It counts as ready once it is in the cluster,
	// because another broker may have to lead its partitions.
	Host string
	// Hosts maps the Host of every node to its address, for the connections of this node. With
	// Hosts, the node resolves no other names.
	Hosts map[string]string
	// Former starts the previous release of the broker, until Upgrade.
	Former bool
	// Heap is the maximum heap size of the Java process, such as 256m. The default is 512m.
	Heap string
	// Log receives the progress of long steps, and a message if the broker ends unexpectedly before
	// Close. The default is standard error.
	Log io.Writer
}

// TLS contains the paths of the PEM files with the broker's certificate and with its clients' CA.
type TLS struct {
	// CertFile and KeyFile contain the broker's certificate chain, which must be valid for
	// 127.0.0.1, and its key in PKCS #8.
	CertFile, KeyFile string
	// CAFile contains the CA certificates for client certificates. With CAFile, clients of the SSL
	// listener need a certificate, and its common name is the user. Clients of SASL_SSL don't need a
	// certificate.
	CAFile string
}

// word matches names and passwords that need no quoting in any configuration.
var word = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)

func (o Options) validate() error {
	if (o.Join != nil) != (o.NodeID > 1) {
		return fmt.Errorf("node id %d: set an id of 2 or more if the broker joins another, and no id otherwise", o.NodeID)
	}
	if o.ControllerOnly && (o.Join != nil || len(o.Listeners) > 0) {
		return errors.New("a controller without a broker can have neither Join nor Listeners")
	}
	var tls, sasl bool
	for i, l := range o.Listeners {
		switch l {
		case Proxied, ProxiedToo:
			if o.Advertise == nil {
				return errors.New("a proxied listener needs Advertise")
			}
		case SASLPlaintext:
			sasl = true
		case SSL:
			tls = true
		case SASLSSL:
			sasl, tls = true, true
		default:
			return fmt.Errorf("%q is not an additional listener: use %s, %s, %s or %s", l, Proxied, SASLPlaintext, SSL, SASLSSL)
		}
		if slices.Contains(o.Listeners[:i], l) {
			return fmt.Errorf("listener %s is named twice", l)
		}
	}
	if tls && (o.TLS.CertFile == "" || o.TLS.KeyFile == "") {
		return errors.New("an SSL listener needs TLS.CertFile and TLS.KeyFile")
	}
	if sasl && len(o.Users) == 0 {
		return errors.New("a SASL listener needs Users")
	}
	for name, password := range o.Users {
		if !word.MatchString(name) || !word.MatchString(password) {
			return fmt.Errorf("user %q: use letters, digits and ._~- in name and password", name)
		}
	}
	return nil
}

// usual returns the listeners that the broker has in addition to Options.Listeners.
func (o Options) usual() []Listener {
	switch {
	case o.ControllerOnly:
		return []Listener{Controller}
	case o.Host != "":
		return []Listener{Plaintext, Replication, Controller}
	}
	return []Listener{Plaintext, Controller}
}

// nodeID returns the broker's node id.
func (o Options) nodeID() int { return max(o.NodeID, 1) }

// log returns Log or its default.
func (o Options) log() io.Writer {
	if o.Log == nil {
		return os.Stderr
	}
	return o.Log
}
