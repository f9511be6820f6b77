//go:build tools

package e2e

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// rowsOf is a Python program that prints a cluster's rows from a table in SQLite.
const rowsOf = `
import sqlite3, sys
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
if db.execute("SELECT complete FROM clusters WHERE cluster = ?", sys.argv[2:]).fetchone() not in ((1,), (True,)):
    sys.exit("the table is not complete")
for row in sorted(db.execute("SELECT namespace, name, uid, version, truncated FROM objects WHERE cluster = ?", sys.argv[2:])):
    print(*row[:4], "true" if row[4] else "false", sep="\t")
`

func sqliteRows(file, cluster string) (string, error) {
	out, err := exec.Command("python3", "-c", rowsOf, file, cluster).CombinedOutput()
	return string(out), err
}

// readsOn is a Python program that reads the first row of a query and keeps the query open.
const readsOn = `
import signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
query = db.execute("SELECT 1 FROM bus UNION ALL SELECT 2")
print(query.fetchone(), flush=True)
signal.pause()
`

func sqliteReader(t *testing.T, file string) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	process(t, write, nil, "python3", "-c", readsOn, file)
	write.Close()
	if line, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		t.Fatalf("the reader of the table wrote %q: %v", line, err)
	}
}

// TestTablePython verifies the tables of examples/table-python.
func TestTablePython(t *testing.T) {
	venv := filepath.Join(t.TempDir(), "venv")
	installed(t, "python3", "-m", "venv", venv)
	directory := "../../examples/table-python"
	installed(t, filepath.Join(venv, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "-r", filepath.Join(directory, "requirements.txt"))
	sample := func(program string) tableSample {
		return tableSample{[]string{filepath.Join(venv, "bin", "python"), filepath.Join(directory, program)}, sqliteRows, "builds the table", false, sqliteReader}
	}
	t.Run("nats", func(t *testing.T) {
		s := sample("nats_table.py")
		checkCredentials(t, s.command...)
		checkTable(t, s, tableOnNATS(t))
	})
	t.Run("kafka", func(t *testing.T) { checkTable(t, sample("kafka_table.py"), tableOnKafka(t)) })
}

// TestTableJava verifies the tables of examples/table-java.
func TestTableJava(t *testing.T) {
	program := javaSample(t, "table-java")
	sample := func(class string) tableSample {
		return tableSample{append(program, class), sqliteRows, "builds the table", false, sqliteReader}
	}
	t.Run("nats", func(t *testing.T) {
		s := sample("NatsTable")
		checkCredentials(t, s.command...)
		checkTable(t, s, tableOnNATS(t))
	})
	t.Run("kafka", func(t *testing.T) { checkTable(t, sample("KafkaTable"), tableOnKafka(t)) })
}

// TestTableStreams verifies the table of examples/kafka-streams.
func TestTableStreams(t *testing.T) {
	bus := tableOnKafka(t)
	bus.sample = append(bus.sample, "STATE="+filepath.Join(t.TempDir(), "state"))
	checkTable(t, tableSample{append(javaSample(t, "kafka-streams"), "StreamsTable"), fileRows, "builds the table", false, nil}, bus)
}

// TestTableTypeScript verifies the tables of examples/table-typescript with Node.js from the npm
// package node.
func TestTableTypeScript(t *testing.T) {
	directory, node := filepath.Join(t.TempDir(), "table-typescript"), t.TempDir()
	if err := os.CopyFS(directory, os.DirFS("../../examples/table-typescript")); err != nil {
		t.Fatal(err)
	}
	installed(t, "npm", "ci", "--prefix", directory, "--no-audit", "--no-fund", "--ignore-scripts")
	installed(t, "npm", "install", "--prefix", node, "--no-audit", "--no-fund", "node@"+nodeVersion)
	sample := func(program string) tableSample {
		return tableSample{[]string{filepath.Join(node, "node_modules", ".bin", "node"), filepath.Join(directory, program)}, sqliteRows, "builds the table", false, sqliteReader}
	}
	t.Run("nats", func(t *testing.T) {
		s := sample("nats-table.ts")
		checkCredentials(t, s.command...)
		checkTable(t, s, tableOnNATS(t))
	})
	t.Run("kafka", func(t *testing.T) { checkTable(t, sample("kafka-table.ts"), tableOnKafka(t)) })
}

// nodeVersion is the version of Node.js that the example is tested with.
const nodeVersion = "24.21.0"

// javaSample builds a copy of an example program and returns a command line without the class to
// run.
func javaSample(t *testing.T, name string) []string {
	t.Helper()
	directory := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(directory, os.DirFS(filepath.Join("../../examples", name))); err != nil {
		t.Fatal(err)
	}
	installed(t, "mvn", "-q", "-B", "-f", directory, "compile", "dependency:copy-dependencies")
	classes := filepath.Join(directory, "target", "classes") + ":" + filepath.Join(directory, "target", "dependency", "*")
	return []string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", classes}
}

// installed runs a command that installs software that a sample needs.
func installed(t *testing.T, command ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
}

func tableOnKafka(t *testing.T) tableBus {
	t.Helper()
	s := topic{t, kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName(t.Name())}
	return tableBus{
		set: onKafka(s, map[string]string{"KAFKA_COMPRESSION": "none", "KAFKA_TRANSACTIONAL_ID": ""}), sample: []string{"KAFKA_BROKERS=" + s.addr, "TOPIC=" + s.name},
		litters: func(t *testing.T, e foreignEvent) {
			t.Helper()
			m := kafkago.Message{Key: []byte(e.key), Value: []byte(e.data)}
			for name, value := range e.headers("ce_") {
				m.Headers = append(m.Headers, kafkago.Header{Key: name, Value: []byte(value)})
			}
			w := kafkago.Writer{Addr: kafkago.TCP(s.addr), Topic: s.name, BatchTimeout: time.Millisecond, Transport: &kafkago.Transport{}} // the default transport may not have the new topic in its metadata yet
			defer w.Close()
			if err := w.WriteMessages(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		},
		forgets: func(t *testing.T) {
			t.Helper()
			client := kafkabrokertest.Client(t, s.addr)
			answer, err := client.DeleteTopics(t.Context(), &kafkago.DeleteTopicsRequest{Topics: []string{s.name, s.name + ".checkpoint"}})
			if err == nil {
				err = errors.Join(answer.Errors[s.name], answer.Errors[s.name+".checkpoint"])
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	}
}
