package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/deadline"
)

// part is one part of a bundle, such as the log or the configuration.
type part struct {
	name string
	// skip is the reason to leave the part out on purpose, or "" to collect it.
	skip string
	// collect returns the files of the part.
	collect func(context.Context) ([]file, error)
	// files and err are the result of collect.
	files []file
	err   error
}

// file is a file of a bundle.
type file struct {
	name    string
	content []byte
}

// collect collects all parts concurrently and returns them. If a part fails, collect still collects
// the others.
func collect(ctx context.Context, parts ...part) []part {
	var collecting sync.WaitGroup
	for i := range parts {
		p := &parts[i]
		if p.skip != "" {
			continue
		}
		collecting.Go(func() {
			p.files, p.err = p.collect(ctx)
			var late *deadline.Error
			if errors.As(p.err, &late) { // its text names the flag --timeout, which the command doesn't have
				p.err = fmt.Errorf("no response within %s: %w", late.Timeout, late.Err)
			}
		})
	}
	collecting.Wait()
	return parts
}

// Bundle contains the files of all parts, and the index of the files.
type Bundle struct {
	Manifest
	parts []part
}

// Manifest is the index of a bundle. It is the bundle's first file, manifest.json.
type Manifest struct {
	Format    int       `json:"format"` // format of the bundle; always 1
	Time      time.Time `json:"time"`   // time of the collection, in UTC
	Address   string    `json:"address"`
	Cluster   string    `json:"cluster,omitempty"`
	Forwarder string    `json:"forwarderVersion,omitempty"` // version of the forwarder
	Command   string    `json:"commandVersion"`             // version of the command that collected the bundle
	Parts     []Entry   `json:"parts"`
}

// Entry is a part in a [Manifest].
type Entry struct {
	Part  string      `json:"part"`
	Files []FileEntry `json:"files,omitempty"`
	// Error is the reason why the collection failed. Skipped is the reason why the part was left out
	// on purpose.
	Error   string `json:"error,omitempty"`
	Skipped string `json:"skipped,omitempty"`
}

// FileEntry is a file in a [Manifest].
type FileEntry struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// index returns the manifest with an entry for each collected part.
func (m Manifest) index(all []part) Manifest {
	m.Format = 1
	for _, c := range all {
		e := Entry{Part: c.name, Skipped: c.skip}
		if c.err != nil {
			e.Error = c.err.Error()
		}
		for _, f := range c.files {
			e.Files = append(e.Files, FileEntry{f.name, len(f.content)})
		}
		m.Parts = append(m.Parts, e)
	}
	return m
}

// Failed returns the number of parts that could not be collected.
func (m Manifest) Failed() (n int) {
	for _, e := range m.Parts {
		if e.Error != "" {
			n++
		}
	}
	return n
}

// Name returns the name of the bundle. The directory in the archive has this name. The default file name
// is this name with the extension .tar.gz.
func (m Manifest) Name() string {
	cluster := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, m.Cluster)
	if cluster == "" {
		cluster = "unknown"
	}
	return "kuberelay-bundle-" + cluster + "-" + m.Time.UTC().Format("20060102T150405Z")
}

// Write writes a .tar.gz with one directory, which has the manifest and all files.
func (b Bundle) Write(w io.Writer) error {
	index, err := json.MarshalIndent(b.Manifest, "", "  ")
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	files := []file{{"manifest.json", append(index, '\n')}}
	for _, c := range b.parts {
		files = append(files, c.files...)
	}
	packed := gzip.NewWriter(w)
	archive := tar.NewWriter(packed)
	for _, f := range files {
		header := &tar.Header{Name: b.Name() + "/" + f.name, Mode: 0o600, Size: int64(len(f.content)), ModTime: b.Time}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
		if _, err := archive.Write(f.content); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return packed.Close()
}

// WriteText writes a line for each part, with its files or the reason why it has none.
func (m Manifest) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, e := range m.Parts {
		result := "skipped: " + e.Skipped
		switch {
		case e.Error != "":
			result = "failed: " + e.Error
		case e.Skipped == "":
			var names []string
			for _, f := range e.Files {
				names = append(names, f.Name)
			}
			result = strings.Join(names, ", ")
		}
		fmt.Fprintf(&b, "%-12s%s\n", e.Part, strings.ReplaceAll(result, "\n", "; "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
