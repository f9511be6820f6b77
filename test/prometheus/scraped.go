package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// sample is a float sample.
type sample struct {
	at    int64 // milliseconds
	value float64
}

var _ chunks.Sample = sample{}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// scraped is an in-memory storage of scraped series.
type scraped []storage.Series

// parse returns the series of the scrapes, which must be ordered by time.
func parse(scrapes []scrape) (storage.Queryable, error) {
	byHash := map[uint64][]chunks.Sample{}
	sets := map[uint64]labels.Labels{}
	for _, s := range scrapes {
		add := func(of labels.Labels, value float64) {
			h := of.Hash()
			byHash[h], sets[h] = append(byHash[h], sample{s.At * 1000, value}), of
		}
		up := 0.0
		if s.Up {
			up = 1
		}
		add(s.labels(labels.FromStrings(labels.MetricName, "up")), up)
		p := textparse.NewPromParser([]byte(s.Text), labels.NewSymbolTable(), false)
		for {
			entry, err := p.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("scrape at %d s: %w", s.At, err)
			}
			if entry == textparse.EntrySeries {
				_, _, value := p.Series()
				var of labels.Labels
				p.Labels(&of)
				add(s.labels(of), value)
			}
		}
	}
	var all scraped
	for _, h := range slices.SortedFunc(maps.Keys(sets), func(a, b uint64) int { return cmp.Or(labels.Compare(sets[a], sets[b]), cmp.Compare(a, b)) }) {
		all = append(all, storage.NewListSeries(sets[h], byHash[h]))
	}
	return &storage.MockQueryable{MockQuerier: all}, nil
}

// labels adds the target's labels to a sample's labels, as Prometheus does without honor_labels.
func (s scrape) labels(of labels.Labels) labels.Labels {
	b := labels.NewBuilder(of)
	for name, value := range s.Labels {
		if own := of.Get(name); own != "" {
			b.Set("exported_"+name, own)
		}
		b.Set(name, value)
	}
	return b.Labels()
}

var _ storage.Querier = scraped(nil)

func (q scraped) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &found{}
	for _, s := range q {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
			found.left = append(found.left, s)
		}
	}
	return found
}

func (scraped) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

func (scraped) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

func (scraped) Close() error { return nil }

// found iterates over the series of a query.
type found struct {
	now  storage.Series
	left []storage.Series
}

func (f *found) Next() bool {
	if len(f.left) == 0 {
		return false
	}
	f.now, f.left = f.left[0], f.left[1:]
	return true
}

func (f *found) At() storage.Series                { return f.now }
func (f *found) Err() error                        { return nil }
func (f *found) Warnings() annotations.Annotations { return nil }
