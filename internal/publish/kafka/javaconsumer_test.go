package kafka

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kuberelay/kuberelay/internal/kafkabroker"
)

// javaConsumer is where JavaConsumer.java is, which says what it does.
const javaConsumer = "testdata/javaconsumer"

// javaRecord is a line of its output.
type javaRecord struct {
	Reader     string // plain, committed or cloudevents
	Topic      string
	Partition  int32
	Offset     int64
	Timestamp  int64
	Key        []byte
	Headers    []javaHeader
	Attributes map[string]string // of cloudevents
	Value      []byte            // of cloudevents the event's data
}

func (r javaRecord) partition() int32 { return r.Partition }

type javaHeader struct {
	Key   string
	Value []byte
}

// runJavaConsumer gives what JavaConsumer reads from the topics. Java compiles it as it
// starts it (JEP 330).
func runJavaConsumer(t *testing.T, addr string, topics ...string) (records []javaRecord) {
	t.Helper()
	installed, err := kafkabroker.Fetch(t.Context(), os.Stderr) // it is there: the broker runs from it
	if err != nil {
		t.Fatal(err)
	}
	pom, err := os.ReadFile(filepath.Join(javaConsumer, "pom.xml"))
	if err != nil {
		t.Fatal(err)
	}
	jars, err := kafkabroker.FetchJars(t.Context(), os.Stderr, "javaconsumer", pom)
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(jars, "*"), filepath.Join(javaConsumer, "JavaConsumer.java"), addr,
	}, topics...)
	cmd := exec.CommandContext(t.Context(), installed.Java, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("the consumer in Java: %v (if it says that there is no compiler module, this Java has no module jdk.compiler: "+
			"install a JDK, as with apt-get install openjdk-17-jdk-headless, or set JAVA_HOME to one)\n%s", err, stderr.Bytes())
	}
	lines := bufio.NewScanner(&stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r javaRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("the consumer in Java wrote %q: %v", lines.Bytes(), err)
		}
		records = append(records, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return records
}
