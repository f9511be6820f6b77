package kafkabrokertest

import (
	"bufio"
	"bytes"
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
)

// RunJava runs a Java program with the dependencies in the directory's pom.xml and returns its output
// lines. Java compiles the source file at the start (JEP 330).
func RunJava(t testing.TB, directory, program string, args ...string) (lines [][]byte) {
	t.Helper()
	installed, err := kafkabroker.Fetch(t.Context(), os.Stderr) // usually cached, because the broker runs from it
	if err != nil {
		t.Fatal(err)
	}
	pom, err := os.ReadFile(filepath.Join(directory, "pom.xml"))
	if err != nil {
		t.Fatal(err)
	}
	jars, err := kafkabroker.FetchJars(t.Context(), os.Stderr, filepath.Base(directory), pom)
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(jars, "*"), filepath.Join(directory, program),
	}, args...)
	cmd := exec.CommandContext(t.Context(), installed.Java, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v (if it says that there is no compiler module, this Java has no module jdk.compiler: "+
			"install a JDK, as with apt-get install openjdk-17-jdk-headless, or set JAVA_HOME to one)\n%s", program, err, stderr.Bytes())
	}
	scanner := bufio.NewScanner(&stdout)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		lines = append(lines, bytes.Clone(scanner.Bytes()))
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

//go:embed javatables
var javaTables embed.FS

// Tables builds two Kafka Streams tables for each topic and returns their rows by kind and key. The
// kinds are "table", a KTable, and "versioned", a versioned table.
func Tables(t testing.TB, addr string, topics ...string) map[string]map[string]string {
	t.Helper()
	directory := t.TempDir()
	if err := os.CopyFS(directory, javaTables); err != nil {
		t.Fatal(err)
	}
	rows := map[string]map[string]string{"table": {}, "versioned": {}}
	for _, line := range RunJava(t, filepath.Join(directory, "javatables"), "JavaTables.java", append([]string{addr}, topics...)...) {
		row := strings.SplitN(string(line), "\t", 3)
		if len(row) != 3 || rows[row[0]] == nil {
			t.Fatalf("the tables in Java wrote %q", line)
		}
		rows[row[0]][row[1]] = row[2]
	}
	return rows
}
