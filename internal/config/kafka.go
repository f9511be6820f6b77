package config

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

var (
	// topicName is Kafka's rule (Topic.java), except that it also matches "." and "..".
	topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

	plainBroker = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:([0-9]{1,5}))?$`)
)

// checkBrokers accepts addresses that have neither a scheme nor credentials.
func checkBrokers(list List) error {
	for _, s := range list {
		switch {
		case strings.Contains(strings.Join(list, ","), "@"):
			return errors.New("it contains credentials; remove everything from the beginning to @, and use KUBERELAY_KAFKA_USER and KUBERELAY_KAFKA_PASSWORD_FILE")
		case strings.Contains(s, "://"):
			return errors.New("the address of a broker must not have a scheme; write it as host:9092, and set KUBERELAY_KAFKA_TLS=true for TLS")
		case !isBroker(s):
			return errors.New("it contains an invalid address; write each broker as host:9092, and separate brokers with commas")
		}
	}
	return nil
}

func isBroker(s string) bool {
	port := plainBroker.ReplaceAllString(s, "$3")
	n, err := strconv.ParseUint(port, 10, 16)
	return plainBroker.MatchString(s) && (port == "" || err == nil && n > 0)
}

// maskBrokers hides a value that is not plainly a list of addresses. It hides text after a comma
// too, because a password can contain commas.
func maskBrokers(value string) string {
	for item := range strings.SplitSeq(value, ",") {
		if !plainBroker.MatchString(strings.TrimSpace(item)) {
			return "***"
		}
	}
	return value
}

func (c *Config) validateKafka(p *problems) {
	k := &c.Kafka
	const brokers = "KUBERELAY_KAFKA_BROKERS"
	switch {
	case p.has(brokers), p.has("KUBERELAY_SINK"):
	case c.Event.Sink == SinkKafka && len(k.Brokers) == 0:
		p.add(brokers, "KUBERELAY_SINK=kafka requires this; for example, set %s=%s", brokers, p.variables[brokers].Example)
	case len(k.Brokers) > 0 && lookup("KUBERELAY_SINK") == "":
		p.add(brokers, "without KUBERELAY_SINK events go to NATS; set KUBERELAY_SINK=kafka as well, or unset this")
	}
	k.validateTopics(p)
	k.validateProducer(p)
	k.validateCredentials(p)
	k.validateOAuth(p)
	k.validateIAM(p)
	k.validateTLS(p)
}

func (k *Kafka) validateTopics(p *problems) {
	const topic, checkpoint = "KUBERELAY_KAFKA_TOPIC", "KUBERELAY_KAFKA_CHECKPOINT_TOPIC"
	filled := strings.NewReplacer("{group}", "g", "{resource}", "r").Replace(k.Topic)
	switch {
	case strings.Contains(k.Topic, "{group}") && !strings.Contains(k.Topic, "{resource}"):
		p.add(topic, "a topic for each resource needs {resource} in its name; write it as kuberelay.{group}.{resource}")
	case !isTopicName(filled):
		p.add(topic, "not the name of a topic; use at most 249 letters, digits, periods, underscores, and hyphens, and the placeholders {group} and {resource}")
	}
	switch {
	case k.CheckpointTopic == "":
	case !isTopicName(k.CheckpointTopic):
		p.add(checkpoint, "not the name of a topic; use at most 249 letters, digits, periods, underscores, and hyphens")
	case k.CheckpointTopic == k.Topic:
		p.add(checkpoint, "%s is the same topic; use another one, or unset this", topic)
	case !p.has(topic) && canRender(k.Topic, k.CheckpointTopic):
		p.add(checkpoint, "with %s=%q, a resource can have the same topic; use a name that the topic of a resource can't have, such as _kuberelay_checkpoint, or unset this", topic, k.Topic)
	}
	if k.Replication == 0 {
		p.add("KUBERELAY_KAFKA_REPLICATION", "a topic has at least one replica; write the number of replicas, or -1 for the brokers' own default")
	}
}

// canRender reports whether the template can produce the topic for some resource. A group is a DNS
// subdomain, and a resource name is a DNS label.
func canRender(template, topic string) bool {
	const label = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	places := strings.NewReplacer(`\{group\}`, label+`(\.`+label+`)*`, `\{resource\}`, label)
	return regexp.MustCompile("^" + places.Replace(regexp.QuoteMeta(template)) + "$").MatchString(topic)
}

func isTopicName(s string) bool { return topicName.MatchString(s) && s != "." && s != ".." }

func (k *Kafka) validateProducer(p *problems) {
	const id = "KUBERELAY_KAFKA_TRANSACTIONAL_ID"
	switch {
	case strings.ContainsFunc(k.TransactionalID, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		p.add(id, "it contains a space or a character that does not print; write it as %s", p.variables[id].Example)
	case k.TransactionalID != "" && !k.Idempotent && !p.has("KUBERELAY_KAFKA_IDEMPOTENT"):
		p.add(id, "it has no effect while KUBERELAY_KAFKA_IDEMPOTENT is false; unset one of them")
	}
}

func (k *Kafka) validateCredentials(p *problems) {
	const mechanism, user, password = "KUBERELAY_KAFKA_SASL_MECHANISM", "KUBERELAY_KAFKA_USER", "KUBERELAY_KAFKA_PASSWORD_FILE"
	instead := map[string]string{"OAUTHBEARER": "a token", "AWS_MSK_IAM": "AWS credentials"}[k.SASLMechanism] // what the mechanism uses instead of a user and a password
	switch {
	case p.has(mechanism) || p.has(password):
	case instead != "" && k.User != "":
		p.add(user, "%s uses %s instead; unset this, or use another %s", k.SASLMechanism, instead, mechanism)
	case instead != "" && k.PasswordFile != "":
		p.add(password, "%s uses %s instead; unset this, or use another %s", k.SASLMechanism, instead, mechanism)
	case instead != "":
	case k.SASLMechanism == "" && k.User != "":
		p.add(user, "it has no effect without a mechanism; set %s to %s", mechanism, Alternatives(p.variables[mechanism].oneOf()))
	case k.SASLMechanism == "" && k.PasswordFile != "":
		p.add(password, "it has no effect without a mechanism; set %s to %s", mechanism, Alternatives(p.variables[mechanism].oneOf()))
	case k.SASLMechanism != "" && k.User == "":
		p.add(mechanism, "it needs a user and a password; set %s and %s", user, password)
	case k.SASLMechanism != "" && k.PasswordFile == "":
		p.add(user, "a user needs a password; name the file that holds it in %s", password)
	}
}

var awsRegion = regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+$`)

func (k *Kafka) validateIAM(p *problems) {
	const mechanism, region, tls = "KUBERELAY_KAFKA_SASL_MECHANISM", "KUBERELAY_KAFKA_AWS_REGION", "KUBERELAY_KAFKA_TLS"
	iam := k.SASLMechanism == "AWS_MSK_IAM"
	switch {
	case p.has(mechanism):
	case k.AWSRegion != "" && !iam:
		p.add(region, "it has no effect without %s=AWS_MSK_IAM; set that as well, or unset this", mechanism)
	case k.AWSRegion != "" && !awsRegion.MatchString(k.AWSRegion):
		p.add(region, "not the name of a region; write it as %s", p.variables[region].Example)
	}
	if iam && !k.TLS && !p.has(mechanism) && !p.has(tls) {
		p.add(mechanism, "it needs TLS; set %s=true", tls)
	}
}

func (k *Kafka) validateTLS(p *problems) {
	const prefix = "KUBERELAY_KAFKA_TLS"
	p.checkTLS(tlsFiles{prefix, k.CAFile, k.CertFile, k.KeyFile})
	if k.TLS || p.has(prefix) {
		return
	}
	for _, v := range []struct{ name, value string }{
		{prefix + "_CA_FILE", k.CAFile}, {prefix + "_CERT_FILE", k.CertFile}, {prefix + "_KEY_FILE", k.KeyFile}, {prefix + "_SERVER_NAME", k.ServerName},
	} {
		if v.value != "" && !p.has(v.name) {
			p.add(v.name, "it has no effect without TLS; set %s=true as well, or unset this", prefix)
		}
	}
}
