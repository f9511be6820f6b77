package kafkabroker

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for pom.xml
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// pom lists everything to download, with exact versions.
//
//go:embed pom.xml
var pom []byte

// An Installation is the software that a broker runs from.
type Installation struct {
	Java string // path of the java command
	Jars string // path of the directory with the jars

	version string // the output of java -version
	classes string // path of the archive of loaded classes, empty without an archive
}

// Fetch finds Java and downloads the broker's jars into the user's cache directory. The first call needs
// Maven and takes some seconds, plus some more for the class archive that makes starts faster. If
// several processes call Fetch at the same time, one process works and the others wait. Fetch writes
// the progress of long steps to log, including the installation of missing tools: see the package
// comment.
//
// The directory's name contains a hash of the pom.xml, so an existing directory is up to date and never
// changes.
func Fetch(ctx context.Context, log io.Writer) (Installation, error) {
	installed, err := fetch(ctx, log, os.Geteuid() == 0)
	if err != nil {
		return Installation{}, fmt.Errorf("fetch the Kafka broker: %w", err)
	}
	return installed.withClasses(ctx, log), nil
}

// FetchFormer is [Fetch] for the previous release of the broker, for upgrade tests.
func FetchFormer(ctx context.Context, log io.Writer) (Installation, error) {
	former := bytes.Replace(pom, []byte("<version>4.1.0</version>"), []byte("<version>4.0.2</version>"), 1)
	if bytes.Equal(former, pom) {
		return Installation{}, errors.New("pom.xml does not have version 4.1.0: change the previous release too")
	}
	installed, err := fetchJars(ctx, log, os.Geteuid() == 0, "kafka-former", "the previous release of the Kafka broker", former)
	if err != nil {
		return Installation{}, fmt.Errorf("fetch the previous release of the Kafka broker: %w", err)
	}
	return installed, nil
}

// FetchJars downloads the jars that a pom.xml lists, for a Java client, as [Fetch] does for the broker.
// It returns the path of their directory, whose name begins with name.
func FetchJars(ctx context.Context, log io.Writer, name string, pom []byte) (string, error) {
	installed, err := fetchJars(ctx, log, os.Geteuid() == 0, name, name, pom)
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", name, err)
	}
	return installed.Jars, nil
}

func fetch(ctx context.Context, log io.Writer, root bool) (Installation, error) {
	return fetchJars(ctx, log, root, "kafka", "the Kafka broker", pom)
}

// fetchJars fetches the jars of pom. The directory's name begins with name, and log messages contain what.
func fetchJars(ctx context.Context, log io.Writer, root bool, name, what string, pom []byte) (Installation, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Installation{}, err
	}
	cache = filepath.Join(cache, "kuberelay", "kafkabroker")
	hash := sha256.Sum256(pom)
	jars := filepath.Join(cache, name+"-"+hex.EncodeToString(hash[:8]))
	installed, err := findJava(ctx)
	if err == nil && exists(jars) {
		installed.Jars = jars
		return installed, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Installation{}, err
	}
	lock, err := childprocess.LockFile(ctx, jars+".lock", log, "fetches "+what)
	if err != nil {
		return Installation{}, err
	}
	defer lock.Close()
	have := exists(jars) // another process may have downloaded them in the meantime
	installed, maven, err := tools(ctx, log, root, !have)
	if err != nil {
		return Installation{}, err
	}
	if !have {
		if err := download(ctx, log, maven, what, pom, jars, lock); err != nil {
			return Installation{}, err
		}
	}
	installed.Jars = jars
	return installed, nil
}

// download downloads the jars into a temporary directory and renames the directory when it is complete. Maven
// inherits the lock, so an orphaned Maven still holds the lock.
func download(ctx context.Context, log io.Writer, maven, what string, pom []byte, jars string, lock *os.File) error {
	tmp := jars + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pom, 0o644); err != nil {
		return err
	}
	cmd := childprocess.Patient(ctx, maven, "-q", "-B", "--strict-checksums", "dependency:copy-dependencies", "-DoutputDirectory=.")
	cmd.Dir = tmp
	cmd.ExtraFiles = []*os.File{lock}
	if err := childprocess.Run(log, "fetching "+what+" with Maven, once", cmd); err != nil {
		return err
	}
	return os.Rename(tmp, jars)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
