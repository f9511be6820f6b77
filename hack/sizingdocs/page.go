package main

import (
	_ "embed"
	"fmt"
	"io"
	"text/template"
	"time"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/sizing"
)

//go:embed sizing.md.tmpl
var page string

// history is the default of KUBERELAY_NATS_HISTORY.
const history = 8

// example is a row in the table of the page.
type example struct {
	Of                          string
	Objects, Deletes, Bytes, MB int64
	Limit                       int64 // recommended memory limit in MiB
	StreamGB                    string
}

// writePage writes docs/sizing.md.
func writePage(w io.Writer) error {
	c := sizing.Measured()
	t, err := template.New("sizing.md").Funcs(template.FuncMap{
		"mb":      func(bytes int64) string { return fmt.Sprintf("%.0f", float64(bytes)/1e6) },
		"percent": func(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) },
		"ms":      func(d time.Duration) string { return fmt.Sprintf("%.2g", d.Seconds()*1e3) },
	}).Parse(page)
	if err != nil {
		return err
	}
	var examples []example
	for _, e := range []example{
		{Of: "ConfigMaps of a small cluster", Objects: 1_000, Bytes: 3_000},
		{Of: "pods", Objects: 5_000, Bytes: 14_000},
		{Of: "pods", Objects: 20_000, Bytes: 14_000},
		{Of: "pods, one replaced per second", Objects: 20_000, Deletes: 86_400, Bytes: 14_000},
		{Of: "pods, five replaced per second", Objects: 20_000, Deletes: 432_000, Bytes: 14_000},
		{Of: "pods of the largest clusters", Objects: 100_000, Bytes: 14_000},
		{Of: "small custom resources", Objects: 100_000, Bytes: 3_000},
	} {
		peak := c.Peak(e.Objects, e.Deletes, e.Bytes)
		e.MB, e.Limit = (peak+500_000)/1_000_000, sizing.Limit(peak)
		e.StreamGB = fmt.Sprintf("%.2g", float64(c.Stream(e.Objects, e.Deletes, history, e.Bytes))/1e9)
		examples = append(examples, e)
	}
	return t.Execute(w, struct {
		sizing.Constants
		Kept14  int64
		Start   time.Duration // CPU time of a start with 20,000 pods
		History int64
		// DefaultDeletes is the default of KUBERELAY_MAX_DELETES with a memory limit of 256Mi. The
		// forwarder sets GOMEMLIMIT to nine tenths of that limit.
		DefaultDeletes int
		Rows           []example
	}{c, c.Kept(14_000), 20_000 * c.PerObject, history, checkpoint.MaxDeletes(256 << 20 * 9 / 10), examples})
}
