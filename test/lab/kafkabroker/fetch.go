package kafkabroker

import (
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

// pom names all that is fetched, with exact versions.
//
//go:embed pom.xml
var pom []byte

// An Installation is what the broker runs from.
type Installation struct {
	Java string // the command
	Jars string // the folder

	version string // all that Java says of itself
	classes string // the archive of loaded classes, empty if there is none
}

// Fetch finds Java and makes the broker's jars available in the user's cache
// folder, which takes some seconds and Maven the first time, and some more for
// what lets it start faster. Of processes that
// do so at the same time one works, the others wait for it. Log is told of all
// that takes long, and of what is installed: see the package comment.
//
// The folder's name has the hash of what it is made from, so one that is there
// is right, and is never changed.
func Fetch(ctx context.Context, log io.Writer) (Installation, error) {
	installed, err := fetch(ctx, log, os.Geteuid() == 0)
	if err != nil {
		return Installation{}, fmt.Errorf("fetch the Kafka broker: %w", err)
	}
	return installed.withClasses(ctx, log), nil
}

// FetchJars makes the jars that a pom.xml names available in the user's cache folder,
// as [Fetch] does with the broker's, for a client in Java, and returns the folder that
// they are in. The folder is called after the name.
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

// fetchJars is told what the jars are: for the folder's name, and for the log.
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
	have := exists(jars) // another process may have fetched them while we waited
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

// download makes the folder of jars beside its place, and renames it when it is
// whole. Maven inherits the lock, so that an orphaned one still holds it.
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
