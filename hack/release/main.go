// Command release completes the files of a release in the directory dist. "make release" runs it after it
// has built the binaries and packaged the chart. The command makes the chart's archives reproducible, and
// writes SHA256SUMS in the format of sha256sum.
//
//	release -time 1763800000 dist
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const sums = "SHA256SUMS"

func main() {
	seconds := flag.Int64("time", 0, "modification `time` of the files in the archives, in Unix seconds")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: release -time SECONDS DIRECTORY")
		os.Exit(2)
	}
	if err := complete(flag.Arg(0), time.Unix(*seconds, 0).UTC()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func complete(directory string, at time.Time) error {
	entries, err := os.ReadDir(directory) // sorted by name
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, e := range entries {
		if e.Name() == sums {
			continue
		}
		file := filepath.Join(directory, e.Name())
		if strings.HasSuffix(file, ".tgz") {
			if err := setTime(file, at); err != nil {
				return fmt.Errorf("rewrite %s: %w", file, err)
			}
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	if list.Len() == 0 {
		return fmt.Errorf("%s has no files", directory)
	}
	return os.WriteFile(filepath.Join(directory, sums), []byte(list.String()), 0o644)
}

// setTime rewrites a compressed tar archive with the same modification time for all files. "helm package"
// uses the current time.
func setTime(file string, at time.Time) error {
	archive, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	zipped.Header = unzipped.Header // Helm marks its archives in this header
	zipped.ModTime = at
	if err := errors.Join(copyTar(tar.NewWriter(zipped), tar.NewReader(unzipped), at), zipped.Close()); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

func copyTar(to *tar.Writer, from *tar.Reader, at time.Time) error {
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return to.Close()
		}
		if err != nil {
			return err
		}
		header.ModTime = at
		if err := to.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(to, from); err != nil {
			return err
		}
	}
}
