package kafkabroker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// java returns a command line for one of Kafka's main classes. Only the first
// of the compilers is used, which is what starts fastest.
func (b *Broker) java(heap, class string, args ...string) []string {
	var classes []string
	if b.installed.classes != "" {
		// An archive that does not fit is passed over, and needs no word.
		classes = []string{"-XX:SharedArchiveFile=" + b.installed.classes, "-Xlog:cds=off"}
	}
	return slices.Concat([]string{b.installed.Java}, classes, []string{
		"-Xmx" + heap,
		"-XX:+UseSerialGC",
		"-XX:TieredStopAtLevel=1",
		"-XX:-UsePerfData", // no file outside of our folder
		"-XX:+ExitOnOutOfMemoryError",
		"-Djava.io.tmpdir=" + filepath.Join(b.dir, tmpDir), // as above
		"-Djava.net.preferIPv4Stack=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", filepath.Join(b.installed.Jars, "*"),
		class,
	}, args)
}

func (b *Broker) brokerArgs() []string { return b.java("512m", "kafka.Kafka", propertiesFile) }

// format gives the broker's data folder a cluster's id and the users of SCRAM,
// which KRaft can have from the start in no other way. One that has an id stays
// as it is.
func (b *Broker) format(ctx context.Context) error {
	if exists(filepath.Join(b.dir, dataDir, metaFile)) {
		return nil
	}
	id := newClusterID()
	if b.opts.Join != nil {
		var err error
		if id, err = b.opts.Join.clusterID(); err != nil {
			return err
		}
	}
	args := b.java("256m", "kafka.tools.StorageTool", "format", "--cluster-id", id, "--config", propertiesFile)
	for name, password := range b.opts.Users {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, name, password))
		}
	}
	cmd := b.group.Command(ctx, b.dir, args...)
	cmd.Env = append(cmd.Env, locale()...)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format its folder: %w\n%s", err, output)
	}
	return nil
}

// clusterID reads the id that format gave to the cluster.
func (b *Broker) clusterID() (string, error) {
	text, err := os.ReadFile(filepath.Join(b.dir, dataDir, metaFile))
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "cluster.id="); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", errors.Join(errors.New("the broker to join has no cluster id"), err)
}

// locale lets Java take the names of files for UTF-8.
func locale() []string { return []string{"LC_ALL=C.UTF-8"} }

// newClusterID returns an id as Kafka makes them: 16 bytes in URL-safe base64.
func newClusterID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	id[0] &= 0x7f        // no dash first, which would be taken for an option
	return base64.RawURLEncoding.EncodeToString(id)
}
