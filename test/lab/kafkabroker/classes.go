package kafkabroker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// withClasses returns the installation with an archive of Kafka's loaded classes (AppCDS, JEP 350),
// which halves the work of a start. If the archive is missing, withClasses creates it, which runs a
// broker once. An archive works only with the Java that created it. If withClasses can't create the
// archive, it logs the error, and brokers start more slowly.
func (i Installation) withClasses(ctx context.Context, log io.Writer) Installation {
	if err := i.makeClasses(ctx, log); err != nil {
		fmt.Fprintf(log, "the Kafka broker will start slowly, because its class archive cannot be created: %v\n", err)
	}
	return i
}

func (i *Installation) makeClasses(ctx context.Context, log io.Writer) error {
	hash := sha256.Sum256([]byte(i.Java + "\n" + i.version))
	archive := i.Jars + "-" + hex.EncodeToString(hash[:8]) + ".jsa"
	if !exists(archive) {
		lock, err := childprocess.LockFile(ctx, archive+".lock", log, "prepares the Kafka broker")
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	if !exists(archive) { // another process may have created it in the meantime
		fmt.Fprintln(log, "preparing a faster start of the Kafka broker, once ...")
		start := time.Now()
		if err := i.train(ctx, archive); err != nil {
			return err
		}
		fmt.Fprintf(log, "preparing a faster start of the Kafka broker, once: took %s\n", time.Since(start).Round(time.Second))
	}
	i.classes = archive
	return nil
}

// train runs a broker that writes the archive when it shuts down.
func (i *Installation) train(ctx context.Context, archive string) error {
	made := archive + ".tmp"
	if err := os.RemoveAll(made); err != nil { // left by a killed process
		return err
	}
	b, err := launch(ctx, Options{Log: io.Discard}, *i, holdPorts, func(b *Broker) {
		b.process.Args = slices.Insert(b.process.Args, 1, "-XX:ArchiveClassesAtExit="+made)
	})
	if err != nil {
		return err
	}
	err = b.CreateTopic(ctx, "classes", 1, nil)
	if err == nil {
		err = b.Stop()
	}
	if err := errors.Join(err, b.Close()); err != nil {
		return err
	}
	return os.Rename(made, archive)
}
