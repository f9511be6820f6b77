package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
)

func TestProblems(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string { return writeFile(t, filepath.Join(dir, name), content) }
	empty, text, short := file("empty", " \n"), file("text", "hunter2 hunter2 hunter2"), file("short", "hunter2")
	userCreds := file("creds", "-----BEGIN NATS USER JWT-----\nx\n-----BEGIN USER NKEY SEED-----\nSUx\n")
	cert, key := writePair(t, dir)
	_, otherKey := writePair(t, t.TempDir())
	const (
		url   = "KUBERELAY_NATS_URL=tls://nats"
		forms = "; write it as pods, deployments.apps, deployments.v1.apps, *.apps, or *"
		creds = "it contains credentials; remove them and the @ that follows, and name a file in KUBERELAY_NATS_PASSWORD_FILE, " +
			"KUBERELAY_NATS_TOKEN_FILE, KUBERELAY_NATS_CREDS_FILE, or KUBERELAY_NATS_NKEY_FILE"
		noServer   = "it contains an invalid URL; write each NATS server as nats://host:4222, and separate servers with commas"
		address    = "not an address; write host:port or :port, such as 127.0.0.1:4222 or :8080"
		noFile     = "there is no such file; write the path of a file that holds the value, not the value itself"
		builtIn    = "the built-in server takes a password or a token, and its certificate is in KUBERELAY_NATS_LISTEN_TLS_CERT_FILE; set KUBERELAY_NATS_URL as well, or unset this"
		allow      = "or allow it with KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS=true"
		inTheClear = "would cross the network in the clear; use tls:// or wss://, set KUBERELAY_NATS_TLS_CA_FILE, which makes TLS mandatory, " + allow
		open       = "anyone who reaches this address could read every object; set KUBERELAY_NATS_TOKEN_FILE, or KUBERELAY_NATS_USER and KUBERELAY_NATS_PASSWORD_FILE, for subscribers, or listen on 127.0.0.1"
		cluster    = "not a name; use at most 253 letters, digits, periods, underscores, and hyphens, and begin with a letter or digit"
		mechanisms = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, or AWS_MSK_IAM"
		noBroker   = "it contains an invalid address; write each broker as host:9092, and separate brokers with commas"
		noTopic    = "not the name of a topic; use at most 249 letters, digits, periods, underscores, and hyphens"
		brokers    = "it contains credentials; remove everything from the beginning to @, and use KUBERELAY_KAFKA_USER and KUBERELAY_KAFKA_PASSWORD_FILE"
		kafka      = "KUBERELAY_SINK=kafka"
		noStream   = "not the name of a stream; use at most 255 letters, digits, hyphens, and underscores"
	)
	for _, tc := range []struct {
		env  []string
		want string // the error without the name of the first variable
	}{
		// Several clusters.
		{[]string{"KUBERELAY_CLUSTER_NAME=a", "KUBERELAY_KUBECONFIG_CONTEXTS=*"}, `="a": it belongs to one cluster, and KUBERELAY_KUBECONFIG_CONTEXTS names several; unset one of them`},
		{[]string{"KUBERELAY_CLUSTER_REPLACES=a", "KUBERELAY_CLUSTER_API=*"}, `="a": it belongs to one cluster, and KUBERELAY_CLUSTER_API names several; unset one of them`},
		{[]string{"KUBERELAY_CLUSTER_API=*", "KUBERELAY_KUBECONFIG_CONTEXTS=a"}, `="*": KUBERELAY_KUBECONFIG_CONTEXTS is set as well; keep one of them`},
		{[]string{"KUBERELAY_KUBECONFIG_CONTEXTS=a,*"}, `="a,*": * means all; remove the others, or the *`},
		{[]string{"KUBERELAY_KUBECONFIG_CONTEXTS=a/b"}, `="a/b": the context cannot be the name of a cluster; write name=context, with letters, digits, periods, underscores, and hyphens in the name`},
		{[]string{"KUBERELAY_KUBECONFIG_CONTEXTS=a,a=b"}, `="a,a=b": "a=b": another entry has the same name; write name=context with another name`},
		{[]string{"KUBERELAY_KUBECONFIG_DIR=/none"}, `="/none": not a directory; name one with kubeconfig files`},
		{[]string{"KUBERELAY_CLUSTER_API=A"}, `="A": not a valid namespace name; use at most 63 lowercase letters, digits, and hyphens, or * for all`},
		{[]string{"KUBERELAY_CLUSTER_API_MANAGEMENT_NAME=a"}, `="a": KUBERELAY_CLUSTER_API is not set; set it as well, or unset this`},

		// Each type.
		{[]string{"KUBERELAY_RESYNC_PERIOD=10"}, `="10": not a duration; write it with a unit, such as 10m`},
		{[]string{"KUBERELAY_RESYNC_PERIOD=-10m"}, `="-10m": out of range; write at least 1s`},
		{[]string{"KUBERELAY_NATS_ACK_TIMEOUT=1h"}, `="1h": out of range; write 100ms to 5m`},
		{[]string{"KUBERELAY_WORKERS=many"}, `="many": not a whole number; write one such as 4`},
		{[]string{"KUBERELAY_WORKERS=0"}, `="0": out of range; write 1 to 1024`},
		{[]string{"KUBERELAY_WORKERS=1025"}, `="1025": out of range; write 1 to 1024`},
		{[]string{"KUBERELAY_LOG_LEVEL=INFO"}, `="INFO": use debug, info, warn, or error`},
		{[]string{"KUBERELAY_LOG_FORMAT=xml"}, `="xml": use json or text`},
		{[]string{"KUBERELAY_CONTENT_MODE=x"}, `="x": use binary or structured`},
		{[]string{"KUBERELAY_SINK=file"}, `="file": use nats, kafka, or stdout`},
		{[]string{"KUBERELAY_KAFKA_TLS=ja"}, `="ja": use true or false`},
		{[]string{"KUBERELAY_LISTEN_ADDR=8080"}, `="8080": ` + address},
		{[]string{"KUBERELAY_LISTEN_ADDR=:http"}, `=":http": ` + address},
		{[]string{"KUBERELAY_NATS_LISTEN=:65536"}, `=":65536": ` + address},
		{[]string{"KUBERELAY_RESOURCES=pods,,nodes"}, `="pods,,nodes": an item is empty; remove the extra comma`},

		// Selection.
		{[]string{"KUBERELAY_RESOURCES="}, `: required; for example, set KUBERELAY_RESOURCES=pods,deployments.apps`},
		{[]string{"KUBERELAY_RESOURCES=nonsense..x"}, `="nonsense..x": a part before, after, or between dots is empty` + forms},
		{[]string{"KUBERELAY_RESOURCES=pods,*."}, `="pods,*.": "*.": a part before, after, or between dots is empty` + forms},
		{[]string{"KUBERELAY_RESOURCES=pods/status"}, `="pods/status": a subresource or an API path cannot be selected` + forms},
		{[]string{"KUBERELAY_RESOURCES=pods nodes"}, `="pods nodes": there is a space in it; put commas between resources`},
		{[]string{"KUBERELAY_RESOURCES=deploy*"}, `="deploy*": * cannot stand for a part of a name` + forms},
		{[]string{"KUBERELAY_RESOURCES=*.*"}, `="*.*": * cannot stand for a part of a name` + forms},
		{[]string{"KUBERELAY_RESOURCES=-pods"}, `="-pods": "-pods" is not the name of a resource` + forms},
		{[]string{"KUBERELAY_RESOURCES=widgets.Example.com"}, `="widgets.Example.com": "Example.com" is not the name of a group` + forms},
		{[]string{"KUBERELAY_EXCLUDE_RESOURCES=*.core"}, `="*.core": the core group has no name; name its resources, such as pods,services`},
		{[]string{"KUBERELAY_NAMESPACES=a,B_c"}, `="a,B_c": "B_c": not a valid namespace name; use at most 63 lowercase letters, digits, and hyphens, or leave the variable out for all namespaces`},
		{[]string{"KUBERELAY_EXCLUDE_NAMESPACES=a,B_c"}, `="a,B_c": "B_c": not a valid namespace name; use at most 63 lowercase letters, digits, and hyphens, or leave the variable out to exclude none`},
		{[]string{"KUBERELAY_EXCLUDE_NAMESPACES=b,a", "KUBERELAY_NAMESPACES=a,b"}, `="b,a": it excludes all of KUBERELAY_NAMESPACES; remove the namespaces to watch from it`},
		{[]string{"KUBERELAY_NAMESPACE_SELECTOR=team in a"}, `="team in a": not a label selector: unable to parse requirement: found 'a' expected: '('; write it as team=a,tier!=test or team in (a,b)`},
		{[]string{"KUBERELAY_FOLLOW=ownerReferences,spec..ref"}, `="ownerReferences,spec..ref": "spec..ref": not a field path; write it as spec.infrastructureRef, or as machines.cluster.x-k8s.io:spec.infrastructureRef for one resource`},
		{[]string{"KUBERELAY_FOLLOW=ownerReference"}, `="ownerReference": no object has such a field; write ownerReferences`},
		{[]string{"KUBERELAY_FOLLOW=.spec.ref"}, `=".spec.ref": not a field path; write it as spec.infrastructureRef, or as machines.cluster.x-k8s.io:spec.infrastructureRef for one resource`},
		{[]string{"KUBERELAY_ON_DESELECT=drop"}, `="drop": use keep or publish`},
		{[]string{"KUBERELAY_LABEL_SELECTOR=app in web"}, `="app in web": not a label selector: unable to parse requirement: found 'web' expected: '('; write it as app=web,tier!=test or app in (web,api)`},
		{[]string{"KUBERELAY_FIELD_SELECTOR=web"}, `="web": not a field selector: invalid selector: 'web'; can't understand 'web'; write it as metadata.name=web,status.phase!=Running`},
		{[]string{"KUBERELAY_KUBE_QPS=600"}, `="600": more than KUBERELAY_KUBE_BURST, which is 500; lower this, or raise KUBERELAY_KUBE_BURST`},

		// Content.
		{[]string{"KUBERELAY_DATA=patch"}, `="patch": use object or change`},
		{[]string{"KUBERELAY_DROP_FIELDS=nodes:.a,,nodes:.b"}, `="nodes:.a,,nodes:.b": an item is empty; remove the extra comma`},
		{[]string{"KUBERELAY_DROP_FIELDS=nodes:.a,"}, `="nodes:.a,": an item is empty; remove the extra comma`},

		// Names.
		{[]string{"KUBERELAY_CLUSTER_NAME=a/b"}, `="a/b": ` + cluster},
		{[]string{"KUBERELAY_CLUSTER_NAME=_control"}, `="_control": ` + cluster},
		{[]string{"KUBERELAY_CLUSTER_REPLACES=a-b"}, `="a-b": there is no name to take over; set KUBERELAY_CLUSTER_NAME to the former cluster's name`},
		{[]string{"KUBERELAY_NATS_STREAM=A.B"}, `="A.B": ` + noStream},
		{[]string{"KUBERELAY_NATS_STREAM=A B"}, `="A B": ` + noStream},
		{[]string{"KUBERELAY_NATS_JETSTREAM_DOMAIN=a.b", "KUBERELAY_NATS_URL=nats://n"}, `="a.b": not one token of a subject; use letters, digits, hyphens, and underscores, without periods`},
		{[]string{"KUBERELAY_NATS_JETSTREAM_DOMAIN=hub"}, `="hub": the built-in server has no domain; set KUBERELAY_NATS_URL as well, or unset this`},
		{[]string{"KUBERELAY_NATS_SUBJECT_PREFIX=a.b"}, `="a.b": not one token of a subject; use letters, digits, hyphens, and underscores, without periods`},

		// URLs.
		{[]string{"KUBERELAY_NATS_URL=localhost:4222"}, `="localhost:4222": it has no scheme; write it as nats://host:4222`},
		{[]string{"KUBERELAY_NATS_URL=http://nats:4222"}, `="http://nats:4222": unknown scheme; use nats, tls, ws, or wss`},
		{[]string{"KUBERELAY_NATS_URL=nats://:4222"}, `="nats://***": ` + noServer},
		{[]string{"KUBERELAY_NATS_URL=nats://hunter:hunter2"}, `="nats://***": ` + noServer},
		{[]string{"KUBERELAY_NATS_URL=nats://h:99999"}, `="nats://h:99999": ` + noServer},
		{[]string{"KUBERELAY_NATS_URL=nats://h/?token=hunter2"}, `="nats://***": ` + noServer},
		{[]string{"KUBERELAY_NATS_URL=nats://h,ws://h"}, `="nats://h,ws://h": ws and wss cannot be mixed with nats and tls; use either for all servers`},
		{[]string{"KUBERELAY_NATS_URL=nats://u:hunter2@h:4222"}, `="nats://***": ` + creds},
		{[]string{"KUBERELAY_NATS_URL=nats://hunter2@h"}, `="nats://***": ` + creds},
		{[]string{"KUBERELAY_NATS_URL=nats://h,nats://u:hun@,ter2@h"}, `="nats://***": ` + creds},
		{[]string{"KUBERELAY_NATS_URL=hunter2://x@h"}, `="***": ` + creds},

		// Files.
		{[]string{"KUBERELAY_NATS_TOKEN_FILE=/nowhere/token", url}, `="/nowhere/token": ` + noFile},
		{[]string{"KUBERELAY_NATS_TOKEN_FILE=hunter2", url}, `: ` + noFile},
		{[]string{"KUBERELAY_NATS_TOKEN_FILE=" + strings.Repeat("hunter2", 100), url}, `: the file cannot be read: file name too long`},
		{[]string{"KUBERELAY_NATS_TOKEN_FILE=" + dir, url}, `="` + dir + `": the file cannot be read: is a directory`},
		{[]string{"KUBERELAY_NATS_TOKEN_FILE=" + empty, url}, `="` + empty + `": the file is empty; put the value into it`},
		{[]string{"KUBERELAY_NATS_CREDS_FILE=" + text, url}, `="` + text + `": the file does not hold a user JWT and a seed; write it with: nsc generate creds`},
		{[]string{"KUBERELAY_NATS_NKEY_FILE=" + text, url}, `="` + text + `": the file does not hold the seed of a user's nkey, which begins with SU; make one with: nk -gen user`},
		{[]string{"KUBERELAY_REDACTION_KEY_FILE=" + short}, `="` + short + `": the key is shorter than 16 bytes; make one with: head -c 32 /dev/urandom | base64`},
		{[]string{"KUBERELAY_NATS_TLS_CA_FILE=" + text, url}, `="` + text + `": the file contains no PEM certificate; write it as -----BEGIN CERTIFICATE-----`},
		{[]string{"KUBERELAY_NATS_TLS_CERT_FILE=" + cert, url, "KUBERELAY_NATS_TLS_KEY_FILE=" + otherKey},
			`="` + cert + `": it does not match KUBERELAY_NATS_TLS_KEY_FILE: tls: private key does not match public key; both must be in PEM and form a pair`},
		{[]string{"KUBERELAY_NATS_TLS_CERT_FILE=" + cert, url}, `="` + cert + `": a certificate needs its key; set KUBERELAY_NATS_TLS_KEY_FILE`},
		{[]string{"KUBERELAY_NATS_TLS_KEY_FILE=" + key, url}, `="` + key + `": a key needs its certificate; set KUBERELAY_NATS_TLS_CERT_FILE`},
		{[]string{"KUBERELAY_DATA_DIR=" + text}, `="` + text + `": "` + text + `" is not a directory; name a directory, or a path at which one can be created`},
		{[]string{"KUBERELAY_DATA_DIR=", "HOME="}, `: there is no home directory for the built-in server's files; set this to a directory`},

		// Combinations.
		{[]string{"KUBERELAY_NATS_USER=u", url}, `="u": a user needs a password; name the file that holds it in KUBERELAY_NATS_PASSWORD_FILE`},
		{[]string{"KUBERELAY_NATS_PASSWORD_FILE=" + text, url}, `="` + text + `": a password needs a user; set KUBERELAY_NATS_USER`},
		{[]string{"KUBERELAY_NATS_TOKEN_FILE=" + text, url, "KUBERELAY_NATS_USER=u", "KUBERELAY_NATS_PASSWORD_FILE=" + text},
			`="` + text + `": KUBERELAY_NATS_PASSWORD_FILE is set as well; keep one of them`},
		{[]string{"KUBERELAY_NATS_CREDS_FILE=" + userCreds}, `="` + userCreds + `": ` + builtIn},

		// The built-in server.
		{[]string{"KUBERELAY_NATS_LISTEN=:4222"}, `=":4222": ` + open},
		{[]string{"KUBERELAY_NATS_LISTEN=0.0.0.0:4222", "KUBERELAY_NATS_ALLOW_ANONYMOUS=true"}, `="0.0.0.0:4222": ` + open},
		{[]string{"KUBERELAY_NATS_LISTEN=nats.example.com:4222", "KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS=true"}, `="nats.example.com:4222": ` + open},
		{[]string{"KUBERELAY_NATS_ALLOW_ANONYMOUS=true", "KUBERELAY_NATS_TOKEN_FILE=" + text}, `="true": KUBERELAY_NATS_TOKEN_FILE is set as well; keep one of them`},
		{[]string{"KUBERELAY_NATS_LISTEN=[::]:4222", "KUBERELAY_NATS_TOKEN_FILE=" + text},
			`="[::]:4222": subscribers would send the secret in KUBERELAY_NATS_TOKEN_FILE over the network in the clear; ` +
				`set KUBERELAY_NATS_LISTEN_TLS_CERT_FILE and KUBERELAY_NATS_LISTEN_TLS_KEY_FILE, ` + allow},
		{[]string{"KUBERELAY_NATS_LISTEN_TLS_CERT_FILE=" + cert}, `="` + cert + `": a certificate needs its key; set KUBERELAY_NATS_LISTEN_TLS_KEY_FILE`},
		{[]string{"KUBERELAY_NATS_MAX_BYTES=-1"}, `="-1": out of range; write at least 0`},
		{[]string{"KUBERELAY_LISTEN_TLS_KEY_FILE=" + key}, `="` + key + `": a key needs its certificate; set KUBERELAY_LISTEN_TLS_CERT_FILE`},

		// Credentials in the clear.
		{[]string{"KUBERELAY_NATS_URL=nats://nats", "KUBERELAY_NATS_TOKEN_FILE=" + text}, `="nats://nats": the secret in KUBERELAY_NATS_TOKEN_FILE ` + inTheClear},
		{[]string{"KUBERELAY_NATS_URL=tls://a,nats://127.0.0.1,nats://10.0.0.1", "KUBERELAY_NATS_USER=u", "KUBERELAY_NATS_PASSWORD_FILE=" + text},
			`="tls://a,nats://127.0.0.1,nats://10.0.0.1": the secret in KUBERELAY_NATS_PASSWORD_FILE ` + inTheClear},
		{[]string{"KUBERELAY_NATS_URL=ws://localhost.example.com", "KUBERELAY_NATS_TOKEN_FILE=" + text}, `="ws://localhost.example.com": the secret in KUBERELAY_NATS_TOKEN_FILE ` + inTheClear},
		{[]string{"KUBERELAY_KAFKA_SASL_MECHANISM=PLAIN", kafka, "KUBERELAY_KAFKA_BROKERS=localhost:9092,kafka", "KUBERELAY_KAFKA_USER=u", "KUBERELAY_KAFKA_PASSWORD_FILE=" + text},
			`="PLAIN": the password in KUBERELAY_KAFKA_PASSWORD_FILE would cross the network in the clear; set KUBERELAY_KAFKA_TLS=true, use SCRAM-SHA-512, ` + allow},
		{[]string{"KUBERELAY_NATS_REPLICAS=3"}, `="3": the built-in server is a single server; set KUBERELAY_NATS_URL to a cluster of servers, or unset this`},
		{[]string{"KUBERELAY_LEADER_ELECTION=true"}, `="true": each forwarder would have a built-in server of its own; set KUBERELAY_NATS_URL to a server that they share, or run a single forwarder without leader election`},
		{[]string{"KUBERELAY_LEASE_NAME=Web"}, `="Web": not a name; use at most 253 lowercase letters, digits, hyphens, and periods`},
		{[]string{"KUBERELAY_LEASE_NAMESPACE=a.b"}, `="a.b": not a valid namespace name; use at most 63 lowercase letters, digits, and hyphens`},
		{[]string{"KUBERELAY_LEASE_DURATION=15500ms"}, `="15500ms": a Lease counts whole seconds; write a whole number of seconds, such as 15s`},
		{[]string{"KUBERELAY_LEASE_DURATION=12s"}, `="12s": 12s is too short: a leader can write for up to 12s after its last renewal (KUBERELAY_LEASE_RENEW_DEADLINE plus KUBERELAY_LEASE_RETRY_PERIOD), and another forwarder must not lead until then; use more than 12s`},
		{[]string{"KUBERELAY_LEASE_DURATION=", "KUBERELAY_LEASE_RENEW_DEADLINE=20s"}, `: 15s is too short: a leader can write for up to 22s after its last renewal (KUBERELAY_LEASE_RENEW_DEADLINE plus KUBERELAY_LEASE_RETRY_PERIOD), and another forwarder must not lead until then; use more than 22s`},
		{[]string{"KUBERELAY_LEASE_RENEW_DEADLINE=3s"}, `="3s": less than twice KUBERELAY_LEASE_RETRY_PERIOD, which is 2s: one failed renewal would end the leadership; use at least 4s`},
		{[]string{"KUBERELAY_RETRY_BASE_DELAY=1m"}, `="1m": longer than KUBERELAY_RETRY_MAX_DELAY, which is 30s; shorten this, or raise KUBERELAY_RETRY_MAX_DELAY`},

		// Kafka.
		{[]string{"KUBERELAY_KAFKA_BROKERS=", kafka}, `: KUBERELAY_SINK=kafka requires this; for example, set KUBERELAY_KAFKA_BROKERS=kafka-0:9092,kafka-1:9092`},
		{[]string{"KUBERELAY_KAFKA_BROKERS=kafka"}, `="kafka": without KUBERELAY_SINK events go to NATS; set KUBERELAY_SINK=kafka as well, or unset this`},
		{[]string{"KUBERELAY_KAFKA_BROKERS=kafka:0", kafka}, `="kafka:0": ` + noBroker},
		{[]string{"KUBERELAY_KAFKA_BROKERS=a,kafka:65536", kafka}, `="a,kafka:65536": ` + noBroker},
		{[]string{"KUBERELAY_KAFKA_BROKERS=u:hunter2", kafka}, `="***": ` + noBroker},
		{[]string{"KUBERELAY_KAFKA_BROKERS=a b", kafka}, `="***": ` + noBroker},
		{[]string{"KUBERELAY_KAFKA_BROKERS=SSL://k:9092", kafka}, `="***": the address of a broker must not have a scheme; write it as host:9092, and set KUBERELAY_KAFKA_TLS=true for TLS`},
		{[]string{"KUBERELAY_KAFKA_BROKERS=k,u:hun,ter2@k:9092", kafka}, `="***": ` + brokers},
		{[]string{"KUBERELAY_KAFKA_BROKERS=SASL_SSL://u:hunter2@k:9092", kafka}, `="***": ` + brokers},
		{[]string{"KUBERELAY_KAFKA_TOPIC=a b"}, `="a b": ` + noTopic + `, and the placeholders {group} and {resource}`},
		{[]string{"KUBERELAY_KAFKA_TOPIC=.."}, `="..": ` + noTopic + `, and the placeholders {group} and {resource}`},
		{[]string{"KUBERELAY_KAFKA_TOPIC=a.{name}"}, `="a.{name}": ` + noTopic + `, and the placeholders {group} and {resource}`},
		{[]string{"KUBERELAY_KAFKA_TOPIC=a.{group}"}, `="a.{group}": a topic for each resource needs {resource} in its name; write it as kuberelay.{group}.{resource}`},
		{[]string{"KUBERELAY_KAFKA_CHECKPOINT_TOPIC=a/b"}, `="a/b": ` + noTopic},
		{[]string{"KUBERELAY_KAFKA_CHECKPOINT_TOPIC=kuberelay"}, `="kuberelay": KUBERELAY_KAFKA_TOPIC is the same topic; use another one, or unset this`},
		{[]string{"KUBERELAY_KAFKA_CHECKPOINT_TOPIC=kuberelay.example.com.checkpoint", "KUBERELAY_KAFKA_TOPIC=kuberelay.{group}.{resource}"}, `="kuberelay.example.com.checkpoint": with KUBERELAY_KAFKA_TOPIC="kuberelay.{group}.{resource}", a resource can have the same topic; use a name that the topic of a resource can't have, such as _kuberelay_checkpoint, or unset this`},
		{[]string{"KUBERELAY_KAFKA_CHECKPOINT_TOPIC=state", "KUBERELAY_KAFKA_TOPIC={resource}"}, `="state": with KUBERELAY_KAFKA_TOPIC="{resource}", a resource can have the same topic; use a name that the topic of a resource can't have, such as _kuberelay_checkpoint, or unset this`},
		{[]string{"KUBERELAY_KAFKA_PARTITIONS=0"}, `="0": out of range; write 1 to 65535`},
		{[]string{"KUBERELAY_KAFKA_REPLICATION=-2"}, `="-2": out of range; write -1 to 32767`},
		{[]string{"KUBERELAY_KAFKA_REPLICATION=0"}, `="0": a topic has at least one replica; write the number of replicas, or -1 for the brokers' own default`},
		{[]string{"KUBERELAY_KAFKA_CLEANUP_POLICY=compact,delete"}, `="compact,delete": use compact or delete`},
		{[]string{"KUBERELAY_KAFKA_COMPRESSION=zip"}, `="zip": use none, gzip, snappy, lz4, or zstd`},
		{[]string{"KUBERELAY_KAFKA_TRANSACTIONAL_ID=a b"}, `="a b": it contains a space or a character that does not print; write it as kuberelay.prod-eu1`},
		{[]string{"KUBERELAY_KAFKA_TRANSACTIONAL_ID=a", "KUBERELAY_KAFKA_IDEMPOTENT=false"}, `="a": it has no effect while KUBERELAY_KAFKA_IDEMPOTENT is false; unset one of them`},
		{[]string{"KUBERELAY_KAFKA_TLS_SERVER_NAME=a"}, `="a": it has no effect without TLS; set KUBERELAY_KAFKA_TLS=true as well, or unset this`},
		{[]string{"KUBERELAY_KAFKA_TLS_CA_FILE=" + cert}, `="` + cert + `": it has no effect without TLS; set KUBERELAY_KAFKA_TLS=true as well, or unset this`},
		{[]string{"KUBERELAY_KAFKA_TLS_CA_FILE=" + text, "KUBERELAY_KAFKA_TLS=true"}, `="` + text + `": the file contains no PEM certificate; write it as -----BEGIN CERTIFICATE-----`},
		{[]string{"KUBERELAY_KAFKA_TLS_CERT_FILE=" + cert, "KUBERELAY_KAFKA_TLS=true"}, `="` + cert + `": a certificate needs its key; set KUBERELAY_KAFKA_TLS_KEY_FILE`},
		{[]string{"KUBERELAY_KAFKA_SASL_MECHANISM=plain"}, `="plain": use ` + mechanisms},
		{[]string{"KUBERELAY_KAFKA_SASL_MECHANISM=PLAIN"}, `="PLAIN": it needs a user and a password; set KUBERELAY_KAFKA_USER and KUBERELAY_KAFKA_PASSWORD_FILE`},
		{[]string{"KUBERELAY_KAFKA_USER=u"}, `="u": it has no effect without a mechanism; set KUBERELAY_KAFKA_SASL_MECHANISM to ` + mechanisms},
		{[]string{"KUBERELAY_KAFKA_USER=u", "KUBERELAY_KAFKA_SASL_MECHANISM=PLAIN"}, `="u": a user needs a password; name the file that holds it in KUBERELAY_KAFKA_PASSWORD_FILE`},
		{[]string{"KUBERELAY_KAFKA_PASSWORD_FILE=" + text}, `="` + text + `": it has no effect without a mechanism; set KUBERELAY_KAFKA_SASL_MECHANISM to ` + mechanisms},
		{[]string{"KUBERELAY_KAFKA_PASSWORD_FILE=hunter2", "KUBERELAY_KAFKA_SASL_MECHANISM=PLAIN", "KUBERELAY_KAFKA_USER=u"}, `: ` + noFile},
		{[]string{"KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"}, `="OAUTHBEARER": it needs a token; name a file in KUBERELAY_KAFKA_OAUTH_TOKEN_FILE, or set KUBERELAY_KAFKA_OAUTH_TOKEN_URL, KUBERELAY_KAFKA_OAUTH_CLIENT_ID, and KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE`},
		{[]string{"KUBERELAY_KAFKA_USER=u", "KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER", "KUBERELAY_KAFKA_OAUTH_TOKEN_FILE=" + text}, `="u": OAUTHBEARER uses a token instead; unset this, or use another KUBERELAY_KAFKA_SASL_MECHANISM`},
		{[]string{"KUBERELAY_KAFKA_PASSWORD_FILE=" + text, "KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER", "KUBERELAY_KAFKA_OAUTH_TOKEN_FILE=" + text}, `="` + text + `": OAUTHBEARER uses a token instead; unset this, or use another KUBERELAY_KAFKA_SASL_MECHANISM`},
		{[]string{"KUBERELAY_KAFKA_OAUTH_TOKEN_FILE=" + text}, `="` + text + `": it has no effect without KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER; set that as well, or unset this`},
		{[]string{"KUBERELAY_KAFKA_OAUTH_TOKEN_FILE=" + text, "KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER", "KUBERELAY_KAFKA_OAUTH_TOKEN_URL=https://a/b"}, `="` + text + `": the token comes from KUBERELAY_KAFKA_OAUTH_TOKEN_URL too; unset one of them`},
		{[]string{"KUBERELAY_KAFKA_OAUTH_TOKEN_FILE=hunter2", "KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"}, `: ` + noFile},
		{[]string{"KUBERELAY_KAFKA_OAUTH_TOKEN_URL=https://a/b", "KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"}, `="https://a/b": it needs a client; set KUBERELAY_KAFKA_OAUTH_CLIENT_ID and KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE`},
		{[]string{"KUBERELAY_KAFKA_OAUTH_CLIENT_ID=c", "KUBERELAY_KAFKA_OAUTH_TOKEN_URL=https://a/b", "KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"}, `="c": a client needs a secret; name the file that holds it in KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE`},
		{[]string{"KUBERELAY_KAFKA_OAUTH_SCOPES=s", "KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER", "KUBERELAY_KAFKA_OAUTH_TOKEN_FILE=" + text}, `="s": it has no effect without KUBERELAY_KAFKA_OAUTH_TOKEN_URL; set that as well, or unset this`},
		{[]string{"KUBERELAY_KAFKA_OAUTH_TOKEN_URL=http://a/b", "KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"}, `="http://a/b": the client secret would cross the network in the clear; use https`},
		{[]string{"KUBERELAY_KAFKA_OAUTH_TOKEN_URL=https://u:hunter2@a/b", "KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"}, `="***": it contains credentials; remove them and the @ that follows, and use KUBERELAY_KAFKA_OAUTH_CLIENT_ID and KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE`},
		{[]string{"KUBERELAY_KAFKA_OAUTH_TOKEN_URL=login", "KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER"}, `="***": not a URL; write it as https://host/path`},
		{[]string{"KUBERELAY_KAFKA_SASL_MECHANISM=OAUTHBEARER", kafka, "KUBERELAY_KAFKA_BROKERS=kafka", "KUBERELAY_KAFKA_OAUTH_TOKEN_FILE=" + text},
			`="OAUTHBEARER": the token would cross the network in the clear; set KUBERELAY_KAFKA_TLS=true, ` + allow},
		{[]string{"KUBERELAY_KAFKA_SASL_MECHANISM=AWS_MSK_IAM"}, `="AWS_MSK_IAM": it needs TLS; set KUBERELAY_KAFKA_TLS=true`},
		{[]string{"KUBERELAY_KAFKA_SASL_MECHANISM=AWS_MSK_IAM", "KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS=true"}, `="AWS_MSK_IAM": it needs TLS; set KUBERELAY_KAFKA_TLS=true`},
		{[]string{"KUBERELAY_KAFKA_USER=u", "KUBERELAY_KAFKA_SASL_MECHANISM=AWS_MSK_IAM", "KUBERELAY_KAFKA_TLS=true"}, `="u": AWS_MSK_IAM uses AWS credentials instead; unset this, or use another KUBERELAY_KAFKA_SASL_MECHANISM`},
		{[]string{"KUBERELAY_KAFKA_PASSWORD_FILE=" + text, "KUBERELAY_KAFKA_SASL_MECHANISM=AWS_MSK_IAM", "KUBERELAY_KAFKA_TLS=true"}, `="` + text + `": AWS_MSK_IAM uses AWS credentials instead; unset this, or use another KUBERELAY_KAFKA_SASL_MECHANISM`},
		{[]string{"KUBERELAY_KAFKA_AWS_REGION=eu-central-1"}, `="eu-central-1": it has no effect without KUBERELAY_KAFKA_SASL_MECHANISM=AWS_MSK_IAM; set that as well, or unset this`},
		{[]string{"KUBERELAY_KAFKA_AWS_REGION=Frankfurt", "KUBERELAY_KAFKA_SASL_MECHANISM=AWS_MSK_IAM", "KUBERELAY_KAFKA_TLS=true"}, `="Frankfurt": not the name of a region; write it as eu-central-1`},
		{[]string{"KUBERELAY_KAFKA_ACK_TIMEOUT=10"}, `="10": not a duration; write it with a unit, such as 10s`},

		// Unknown names. Their values may be secrets.
		{[]string{"KUBERELAY_KAFKA_PASSWORD=hunter2"}, `: there is no such variable; did you mean KUBERELAY_KAFKA_PASSWORD_FILE?`},
		{[]string{"KUBERELAY_RESOURCE=hunter2"}, `: there is no such variable; did you mean KUBERELAY_RESOURCES?`},
		{[]string{"KUBERELAY_NATS_PASSWORD=hunter2"}, `: there is no such variable; did you mean KUBERELAY_NATS_PASSWORD_FILE?`},
		{[]string{"KUBERELAY_NATS_TOKEN=hunter2"}, `: there is no such variable; did you mean KUBERELAY_NATS_TOKEN_FILE?`},
		{[]string{"KUBERELAY_NATS_PORT=4222"}, `: there is no such variable; did you mean KUBERELAY_NATS_URL?`},
		{[]string{"KUBERELAY_LISTEN_ADRR=:1"}, `: there is no such variable; did you mean KUBERELAY_LISTEN_ADDR?`},
	} {
		t.Run(tc.env[0], func(t *testing.T) {
			setenv(t, append([]string{"KUBERELAY_RESOURCES=pods"}, tc.env...)...)
			c, err := config.Load(config.Forwarding)
			if err == nil {
				t.Fatalf("no error, but %+v", c)
			}
			name, _, _ := strings.Cut(tc.env[0], "=")
			if got, want := err.Error(), name+tc.want; got != want {
				t.Errorf("\ngot  %s\nwant %s", got, want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("the error repeats a secret")
			}
		})
	}
}

// TestSecretsInTheClear verifies that secrets may cross the loopback interface, and a network with
// TLS or with KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS.
func TestSecretsInTheClear(t *testing.T) {
	dir := t.TempDir()
	secret := writeFile(t, filepath.Join(dir, "secret"), "hunter2")
	cert, key := writePair(t, dir)
	nats, kafka := []string{"KUBERELAY_NATS_TOKEN_FILE=" + secret}, []string{"KUBERELAY_SINK=kafka",
		"KUBERELAY_KAFKA_SASL_MECHANISM=PLAIN", "KUBERELAY_KAFKA_USER=u", "KUBERELAY_KAFKA_PASSWORD_FILE=" + secret}
	for _, env := range [][]string{
		append(nats, "KUBERELAY_NATS_URL=nats://localhost,nats://127.0.0.9:4222,nats://[::1]:4222"),
		append(nats, "KUBERELAY_NATS_URL=tls://nats"),
		append(nats, "KUBERELAY_NATS_URL=wss://nats"),
		append(nats, "KUBERELAY_NATS_URL=nats://nats", "KUBERELAY_NATS_TLS_CA_FILE="+cert),
		append(nats, "KUBERELAY_NATS_URL=nats://nats", "KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS=true"),
		append(nats, "KUBERELAY_NATS_LISTEN=localhost:4222"),
		append(nats, "KUBERELAY_NATS_LISTEN=:4222", "KUBERELAY_NATS_LISTEN_TLS_CERT_FILE="+cert, "KUBERELAY_NATS_LISTEN_TLS_KEY_FILE="+key),
		append(nats, "KUBERELAY_NATS_LISTEN=:4222", "KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS=true"),
		append(kafka, "KUBERELAY_KAFKA_BROKERS=localhost,[::1]:9092,127.0.0.1:9092"),
		append(kafka, "KUBERELAY_KAFKA_BROKERS=kafka", "KUBERELAY_KAFKA_TLS=true"),
		append(kafka, "KUBERELAY_KAFKA_BROKERS=kafka", "KUBERELAY_KAFKA_SASL_MECHANISM=SCRAM-SHA-256"),
		append(kafka, "KUBERELAY_KAFKA_BROKERS=kafka", "KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS=true"),
	} {
		setenv(t, append([]string{"KUBERELAY_RESOURCES=pods"}, env...)...)
		if _, err := config.Load(config.Forwarding); err != nil {
			t.Errorf("%s: %v", env, err)
		}
	}
}

// TestSecretsInTheClearAreRefused verifies that secrets may not cross a network without TLS, unless
// KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS is true.
func TestSecretsInTheClearAreRefused(t *testing.T) {
	secret := writeFile(t, filepath.Join(t.TempDir(), "secret"), "hunter2")
	nats, kafka := "KUBERELAY_NATS_TOKEN_FILE="+secret, []string{"KUBERELAY_SINK=kafka",
		"KUBERELAY_KAFKA_SASL_MECHANISM=PLAIN", "KUBERELAY_KAFKA_USER=u", "KUBERELAY_KAFKA_PASSWORD_FILE=" + secret}
	for _, env := range [][]string{
		{nats, "KUBERELAY_NATS_URL=nats://nats"},
		{nats, "KUBERELAY_NATS_URL=ws://nats"},
		{nats, "KUBERELAY_NATS_URL=tls://a,nats://b"},
		{nats, "KUBERELAY_NATS_URL=nats://localhost.example.com"},
		{nats, "KUBERELAY_NATS_LISTEN=:4222"},
		{nats, "KUBERELAY_NATS_LISTEN=0.0.0.0:4222"},
		append(slices.Clip(kafka), "KUBERELAY_KAFKA_BROKERS=kafka"),
		append(slices.Clip(kafka), "KUBERELAY_KAFKA_BROKERS=localhost:9092,kafka:9092"),
	} {
		setenv(t, append([]string{"KUBERELAY_RESOURCES=pods"}, env...)...)
		if _, err := config.Load(config.Forwarding); err == nil || !strings.Contains(err.Error(), "in the clear") {
			t.Errorf("%s: %v, want it refused", env, err)
		}
	}
}

// TestChecks verifies that the problems of other packages appear with the rest, in the order of the
// variables. A check does not run if its variable already has a problem.
func TestChecks(t *testing.T) {
	setenv(t, "KUBERELAY_RESOURCES=pods", "KUBERELAY_LOG_LEVEL=loud", "KUBERELAY_FILTER=x", "KUBERELAY_DROP_FIELDS=,")
	check := func(name string) config.Check {
		return config.Check{Name: name, Run: func(c config.Config) error { return fmt.Errorf("%s of %s:\n  no", name, c.Content.Filter) }}
	}
	_, err := config.Load(config.Forwarding, check("KUBERELAY_DROP_FIELDS"), check("KUBERELAY_FILTER"))
	want := "KUBERELAY_FILTER of x:\n  no\n" +
		`KUBERELAY_DROP_FIELDS=",": an item is empty; remove the extra comma` + "\n" +
		`KUBERELAY_LOG_LEVEL="loud": use debug, info, warn, or error`
	if err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	setenv(t, "KUBERELAY_RESOURCES=pods")
	fine := config.Check{Name: "KUBERELAY_FILTER", Run: func(config.Config) error { return nil }}
	if _, err := config.Load(config.Forwarding, fine); err != nil {
		t.Error(err)
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	setenv(t,
		"KUBERELAY_TYPO=x",
		"KUBERELAY_LOG_LEVEL=loud",
		"KUBERELAY_RESYNC_PERIOD=10",
		"KUBERELAY_NATS_URL=nats://u:p@h",
		"KUBERELAY_NAMESPACES=A,b,C",
	)
	_, err := config.Load(config.Forwarding)
	if err == nil {
		t.Fatal("no error")
	}
	var got []string
	for line := range strings.Lines(err.Error()) {
		name, _, _ := strings.Cut(line, ":")
		got = append(got, name)
	}
	want := `KUBERELAY_RESOURCES KUBERELAY_NAMESPACES="A,b,C" KUBERELAY_NAMESPACES="A,b,C" KUBERELAY_NATS_URL="nats ` +
		`KUBERELAY_RESYNC_PERIOD="10" KUBERELAY_LOG_LEVEL="loud" KUBERELAY_TYPO`
	if got := strings.Join(got, " "); got != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
}

// TestServiceVariablesAreIgnored verifies that Load ignores the variables that Kubernetes sets for
// Services named kuberelay and kuberelay-nats.
func TestServiceVariablesAreIgnored(t *testing.T) {
	setenv(t, "KUBERELAY_RESOURCES=pods",
		"KUBERELAY_SERVICE_HOST=10.0.0.1",
		"KUBERELAY_SERVICE_PORT=8080",
		"KUBERELAY_SERVICE_PORT_HTTP_METRICS=8080",
		"KUBERELAY_PORT=tcp://10.0.0.1:8080",
		"KUBERELAY_PORT_8080_TCP=tcp://10.0.0.1:8080",
		"KUBERELAY_PORT_8080_TCP_PROTO=tcp",
		"KUBERELAY_PORT_8080_TCP_PORT=8080",
		"KUBERELAY_PORT_8080_TCP_ADDR=10.0.0.1",
		"KUBERELAY_NATS_SERVICE_HOST=10.0.0.2",
		"KUBERELAY_NATS_SERVICE_PORT=4222",
		"KUBERELAY_NATS_PORT=udp://10.0.0.2:4222",
		"KUBERELAY_NATS_PORT_4222_UDP=udp://10.0.0.2:4222",
	)
	if _, err := config.Load(config.Forwarding); err != nil {
		t.Error(err)
	}
}

// TestNoVariableLooksLikeOneOfAService verifies that no variable looks like a variable of a
// Service. Otherwise, a misspelling of that variable would go unnoticed.
func TestNoVariableLooksLikeOneOfAService(t *testing.T) {
	for _, f := range config.Fields() {
		for _, end := range []string{"_SERVICE_HOST", "_SERVICE_PORT", "_PORT", "_TCP", "_UDP", "_SCTP"} {
			if strings.HasSuffix(f.Name, end) {
				t.Errorf("%s ends with %s", f.Name, end)
			}
		}
	}
}

func writeFile(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func writePair(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return writeFile(t, filepath.Join(dir, "tls.crt"), encode("CERTIFICATE", der)),
		writeFile(t, filepath.Join(dir, "tls.key"), encode("PRIVATE KEY", pkcs8))
}

// TestRedactionKey verifies that the call that returns the key also checks it, because the file can
// change after the configuration is loaded.
func TestRedactionKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	e := config.Event{RedactionKeyFile: file}
	for _, tt := range []struct{ content, want, problem string }{
		{"0123456789abcdef\r\n", "0123456789abcdef", ""},
		{"", "", "shorter than 16 bytes"},
		{"0123456789\n\n\n\n\n\n\n\n", "", "shorter than 16 bytes"},
	} {
		if err := os.WriteFile(file, []byte(tt.content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := e.RedactionKey()
		if string(got) != tt.want || (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("of %q: got %q, %v; want %q, %q", tt.content, got, err, tt.want, tt.problem)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got, err := e.RedactionKey(); got != nil || err == nil || strings.Contains(err.Error(), file) {
		t.Errorf("without the file: got %q, %v", got, err)
	}
	if got, err := (&config.Event{}).RedactionKey(); got != nil || err != nil {
		t.Errorf("without a setting: got %q, %v", got, err)
	}
}
