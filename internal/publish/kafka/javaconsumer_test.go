package kafka

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	args := append([]string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(fetchJavaConsumer(t), "*"), filepath.Join(javaConsumer, "JavaConsumer.java"), addr,
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

// fetchJavaConsumer gives the folder in the user's cache with the jars that its pom.xml
// names, which Maven fetches the first time. The folder's name has the hash of the
// pom.xml, so one that is there is right.
func fetchJavaConsumer(t *testing.T) string {
	t.Helper()
	pom, err := os.ReadFile(filepath.Join(javaConsumer, "pom.xml"))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "kuberelay", "javaconsumer")
	hash := sha256.Sum256(pom)
	jars := filepath.Join(cache, hex.EncodeToString(hash[:8]))
	if _, err := os.Stat(jars); err == nil {
		return jars
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp(cache, "tmp-") //nolint:usetesting // a folder that can be renamed to one in the cache
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pom, 0o644); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(os.Stderr, "fetching the clients in Java for the tests with Maven, once ...")
	cmd := exec.CommandContext(t.Context(), findMaven(t), "-q", "-B", "--strict-checksums", "dependency:copy-dependencies", "-DoutputDirectory=.")
	cmd.Dir = tmp
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("fetch the clients in Java: %v\n%s", err, output)
	}
	// Of two processes that do so at the same time the second finds it done.
	if err := os.Rename(tmp, jars); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return jars
}

// findMaven gives the command, and installs it for root where there is apt-get.
func findMaven(t *testing.T) string {
	t.Helper()
	maven, err := exec.LookPath("mvn")
	if err == nil {
		return maven
	}
	aptGet, missing := exec.LookPath("apt-get")
	if os.Geteuid() != 0 || missing != nil {
		t.Fatalf("the clients in Java are not in the cache yet, and Maven, which fetches them, is missing: %v\n"+
			"install it: apt-get install maven, dnf install maven, or brew install maven", err)
	}
	fmt.Fprintln(os.Stderr, "installing Maven with apt-get ...")
	for _, args := range [][]string{{"update"}, {"install", "--no-install-recommends", "maven"}} {
		if err := runAptGet(t.Context(), aptGet, args...); err != nil {
			t.Fatalf("install Maven: %v", err)
		}
	}
	if maven, err = exec.LookPath("mvn"); err != nil {
		t.Fatalf("install Maven: %v, even after apt-get", err)
	}
	return maven
}

func runAptGet(ctx context.Context, aptGet string, args ...string) error {
	cmd := exec.CommandContext(ctx, aptGet, append([]string{"-q", "-y", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, output)
	}
	return nil
}
