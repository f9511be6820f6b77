package kafkabroker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// java returns a command line for one of Kafka's main classes. It limits Java to the C1 compiler, which
// gives the fastest start.
func (b *Broker) java(heap, class string, args ...string) []string {
	var options []string
	if b.installed.classes != "" {
		// Java ignores an archive of another Java without a warning.
		options = []string{"-XX:SharedArchiveFile=" + b.installed.classes, "-Xlog:cds=off"}
	}
	if b.opts.Hosts != nil { // the nodes of a cluster find each other by this file
		options = append(options, "-Djdk.net.hosts.file="+filepath.Join(b.dir, hostsFile))
	}
	for _, name := range slices.Sorted(maps.Keys(b.opts.SystemProperties)) {
		options = append(options, "-D"+name+"="+b.opts.SystemProperties[name])
	}
	return slices.Concat([]string{b.installed.Java}, options, []string{
		"-Xmx" + heap,
		"-XX:+UseSerialGC",
		"-XX:TieredStopAtLevel=1",
		"-XX:-UsePerfData", // writes no file outside the broker's directory
		"-XX:+ExitOnOutOfMemoryError",
		"-Djava.io.tmpdir=" + filepath.Join(b.dir, tmpDir), // writes no file outside the broker's directory
		"-Djava.net.preferIPv4Stack=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", filepath.Join(b.installed.Jars, "*"),
		class,
	}, args)
}

func (b *Broker) brokerArgs() []string {
	return b.java(cmp.Or(b.opts.Heap, "512m"), "kafka.Kafka", propertiesFile)
}

// format initializes the broker's data directory with a cluster id and the SCRAM users, which KRaft needs
// before the first start. It doesn't change an initialized directory.
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
		return fmt.Errorf("format its directory: %w\n%s", err, output)
	}
	return nil
}

// clusterID returns the cluster id that format wrote.
func (b *Broker) clusterID() (string, error) {
	text, err := os.ReadFile(filepath.Join(b.dir, dataDir, metaFile))
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "cluster.id="); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", errors.Join(errors.New("the broker to join has no cluster id"), err)
}

// locale makes Java read file names as UTF-8.
func locale() []string { return []string{"LC_ALL=C.UTF-8"} }

// newClusterID returns an id in Kafka's format: 16 bytes in URL-safe base64.
func newClusterID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	id[0] &= 0x7f        // a leading dash would look like a flag
	return base64.RawURLEncoding.EncodeToString(id)
}
