package kafkabroker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
)

// A Listener is a listener of the broker, by name.
type Listener string

// The listeners. Plaintext always exists. Its clients are the user ANONYMOUS.
const (
	Plaintext     Listener = "PLAINTEXT"
	SASLPlaintext Listener = "SASL_PLAINTEXT"
	SSL           Listener = "SSL"
	Proxied       Listener = "PROXIED"     // plaintext, with another advertised address: see Advertise
	ProxiedToo    Listener = "PROXIED_TOO" // a second one
	SASLSSL       Listener = "SASL_SSL"

	Replication Listener = "REPLICATION" // for other brokers: see Options.Host
	Controller  Listener = "CONTROLLER"  // for brokers and controllers
)

// Options configure a broker. The zero value is a broker with a plaintext listener and a temporary
// folder.
type Options struct {
	// Dir is where the broker keeps its data, configuration and log. It is created if necessary,
	// and stays. An existing folder of an earlier broker is used again. Without Dir, the broker
	// has a temporary folder, which is removed at its end.
	Dir string
	// Listeners are the listeners besides Plaintext, each on its own port.
	Listeners []Listener
	// Advertise returns the address that clients of a proxied listener are told to connect to. It
	// is called at each start.
	Advertise func(addr string) string
	// Users are the users of the SASL listeners, with their passwords, for PLAIN, SCRAM-SHA-256
	// and SCRAM-SHA-512. SCRAM users are part of the data: for an existing Dir, the users of its
	// creation remain.
	Users map[string]string
	// TLS is required for the SSL listeners.
	TLS TLS
	// Authorize makes the broker refuse what no ACL allows. Without it everybody may do
	// everything. ANONYMOUS and SuperUsers always may.
	Authorize  bool
	SuperUsers []string
	// Properties are added to the broker's server.properties and override existing ones.
	Properties map[string]string
	// SystemProperties are those of the broker's Java.
	SystemProperties map[string]string
	// Join makes this a broker of another broker's cluster, which must be running. The first
	// broker of a cluster is its only controller. Close it last.
	Join *Broker
	// NodeID is the id of a broker that joins, from 2 on. Without Join it is 1.
	NodeID int
	// ControllerOnly makes this a controller without a broker. It has only the listener Controller.
	ControllerOnly bool
	// Host is the name by which the other nodes of the cluster reach the listeners Controller and
	// Replication, so that the Hosts of each of them can lead elsewhere. A broker with a Host has
	// the listener Replication. It counts as ready once it is in the cluster, because another
	// broker may have to lead its partitions.
	Host string
	// Hosts has the address of every Host, for the connections of this node. No other name is
	// resolved then.
	Hosts map[string]string
	// Former makes this a broker of the release before, until Upgrade.
	Former bool
	// Heap is the largest heap of Java, such as 256m. The default is 512m.
	Heap string
	// Log receives the progress of long steps, and a message if the broker ends unexpectedly
	// before Close returns. The default is the standard error.
	Log io.Writer
}

// TLS names the PEM files of the broker's certificate and of the authorities of its clients.
type TLS struct {
	// CertFile and KeyFile are the broker's certificate chain, which must be valid for 127.0.0.1,
	// and its key in PKCS #8.
	CertFile, KeyFile string
	// CAFile has the authorities for client certificates. With it, clients of the SSL listener
	// need a certificate, and its common name is the user. Clients of SASL_SSL don't need one.
	CAFile string
}

// word matches names and passwords that don't need quoting anywhere.
var word = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)

func (o Options) validate() error {
	if (o.Join != nil) != (o.NodeID > 1) {
		return fmt.Errorf("node id %d: a broker that joins another needs one from 2 on, and only such a broker", o.NodeID)
	}
	if o.ControllerOnly && (o.Join != nil || len(o.Listeners) > 0) {
		return errors.New("a controller without a broker joins nobody and has no further listeners")
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
			return fmt.Errorf("there is no further listener %q: use %s, %s, %s or %s", l, Proxied, SASLPlaintext, SSL, SASLSSL)
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

// usual returns the listeners that aren't chosen.
func (o Options) usual() []Listener {
	switch {
	case o.ControllerOnly:
		return []Listener{Controller}
	case o.Host != "":
		return []Listener{Plaintext, Replication, Controller}
	}
	return []Listener{Plaintext, Controller}
}

// nodeID returns the id of the broker in its cluster.
func (o Options) nodeID() int { return max(o.NodeID, 1) }

// log returns Log or its default.
func (o Options) log() io.Writer {
	if o.Log == nil {
		return os.Stderr
	}
	return o.Log
}
