package kafkabroker

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// The names of the files in the broker's directory, which is also the broker's working directory.
const (
	propertiesFile = "server.properties"
	hostsFile      = "hosts"
	keystoreFile   = "keystore.pem"
	truststoreFile = "truststore.pem"
	logFile        = "kafka.log"
	dataDir        = "data"
	metaFile       = "meta.properties" // in dataDir
	tmpDir         = "tmp"
)

// properties returns the broker's configuration.
func (o Options) properties(ports map[Listener]childprocess.Port) map[string]string {
	p := map[string]string{
		"process.roles":              o.roles(),
		"node.id":                    strconv.Itoa(o.nodeID()),
		"controller.quorum.voters":   o.voter(ports),
		"controller.listener.names":  string(Controller),
		"inter.broker.listener.name": string(Plaintext),
		"log.dirs":                   dataDir,
		"auto.create.topics.enable":  "false",
		// A killed broker can't register again before its former session expires, by default after nine
		// seconds.
		"broker.session.timeout.ms":        "2000",
		"broker.heartbeat.interval.ms":     "500",
		"group.initial.rebalance.delay.ms": "0",
		// A single node can't store three replicas, and doesn't need fifty partitions.
		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "1",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "1",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"share.coordinator.state.topic.num.partitions":     "1",
		"log.cleaner.dedupe.buffer.size":                   "16777216", // fits a small heap; the default is 128 MiB
	}
	if o.ControllerOnly {
		delete(p, "inter.broker.listener.name")
	} else if o.Host != "" {
		p["inter.broker.listener.name"] = string(Replication)
	}
	var listeners, advertised, protocols []string
	for _, l := range slices.Concat(o.usual(), o.Listeners) {
		url := string(l) + "://" + ports[l].Address()
		if l != Controller || o.Join == nil {
			listeners = append(listeners, url)
		}
		protocol := l
		switch l {
		case Controller, Replication, Proxied, ProxiedToo:
			protocol = Plaintext
		}
		switch l {
		case Controller, Replication:
			if o.Host != "" && l != Controller || o.ControllerOnly {
				advertised = append(advertised, string(l)+"://"+o.named(ports[l]))
			}
		case Proxied, ProxiedToo:
			advertised = append(advertised, string(l)+"://"+o.Advertise(ports[l].Address()))
		default:
			advertised = append(advertised, url)
		}
		protocols = append(protocols, string(l)+":"+string(protocol))
	}
	p["listeners"] = strings.Join(listeners, ",")
	p["advertised.listeners"] = strings.Join(advertised, ",")
	p["listener.security.protocol.map"] = strings.Join(protocols, ",")
	o.setUsers(p)
	o.setTLS(p)
	if o.Authorize {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		super := []string{"User:ANONYMOUS"}
		for _, user := range o.SuperUsers {
			super = append(super, "User:"+user)
		}
		p["super.users"] = strings.Join(super, ";")
	}
	maps.Copy(p, o.Properties)
	return p
}

func (o Options) setUsers(p map[string]string) {
	if len(o.Users) == 0 {
		return
	}
	p["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
	plain := "org.apache.kafka.common.security.plain.PlainLoginModule required"
	for _, name := range slices.Sorted(maps.Keys(o.Users)) {
		plain += fmt.Sprintf(" user_%s=%q", name, o.Users[name])
	}
	const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	for _, l := range []Listener{SASLPlaintext, SASLSSL} {
		if slices.Contains(o.Listeners, l) {
			prefix := "listener.name." + strings.ToLower(string(l)) + "."
			p[prefix+"plain.sasl.jaas.config"] = plain + ";"
			p[prefix+"scram-sha-256.sasl.jaas.config"] = scram
			p[prefix+"scram-sha-512.sasl.jaas.config"] = scram
		}
	}
}

func (o Options) setTLS(p map[string]string) {
	if o.TLS.CertFile == "" {
		return
	}
	p["ssl.keystore.type"] = "PEM"
	p["ssl.keystore.location"] = keystoreFile
	if o.TLS.CAFile == "" {
		return
	}
	p["ssl.truststore.type"] = "PEM"
	p["ssl.truststore.location"] = truststoreFile
	p["listener.name.ssl.ssl.client.auth"] = "required"
	p["ssl.principal.mapping.rules"] = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"
}

func (o Options) roles() string {
	switch {
	case o.ControllerOnly:
		return "controller"
	case o.Join != nil:
		return "broker"
	}
	return "broker,controller"
}

// voter returns the value of controller.quorum.voters, which contains the only controller.
func (o Options) voter(ports map[Listener]childprocess.Port) string {
	if o.Join != nil {
		return "1@" + o.Join.opts.named(o.Join.ports[Controller])
	}
	return "1@" + o.named(ports[Controller])
}

// named returns the address of a port with the name of the host, or with the IP address if Host is
// empty.
func (o Options) named(p childprocess.Port) string {
	if o.Host == "" {
		return p.Address()
	}
	return net.JoinHostPort(o.Host, strconv.Itoa(p.Number))
}

// writeConfiguration writes the broker's configuration files into dir.
func (o Options) writeConfiguration(dir string, ports map[Listener]childprocess.Port) error {
	p := o.properties(ports)
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&text, "%s=%s\n", escape(key), escape(p[key]))
	}
	err := os.WriteFile(filepath.Join(dir, propertiesFile), []byte(text.String()), 0o600)
	var hosts strings.Builder
	for _, name := range slices.Sorted(maps.Keys(o.Hosts)) {
		fmt.Fprintf(&hosts, "%s %s\n", o.Hosts[name], name)
	}
	if o.Hosts != nil {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, hostsFile), []byte(hosts.String()), 0o600))
	}
	if o.TLS.CertFile != "" {
		err = errors.Join(err, concatenate(filepath.Join(dir, keystoreFile), o.TLS.KeyFile, o.TLS.CertFile))
	}
	if o.TLS.CAFile != "" {
		err = errors.Join(err, concatenate(filepath.Join(dir, truststoreFile), o.TLS.CAFile))
	}
	return err
}

// concatenate writes the content of all source files to one file.
func concatenate(file string, sources ...string) error {
	var all [][]byte
	for _, source := range sources {
		content, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		all = append(all, content)
	}
	return os.WriteFile(file, bytes.Join(all, []byte("\n")), 0o600)
}

// escape escapes a key or a value for the format of java.util.Properties.
func escape(text string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(text)) {
		switch {
		case unit < ' ' || unit > '~':
			fmt.Fprintf(&b, `\u%04x`, unit)
		case strings.ContainsRune(`\:=#! `, rune(unit)):
			b.WriteByte('\\')
			b.WriteByte(byte(unit))
		default:
			b.WriteByte(byte(unit))
		}
	}
	return b.String()
}
