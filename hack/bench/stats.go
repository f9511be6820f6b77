package main

import (
	"math"
	"slices"
)

// series is a value that was measured several times. Its functions are 0 for none.
type series []float64

func (s series) sorted() series { return slices.Sorted(slices.Values(s)) }

// median is that of the sorted values, the mean of the two in the middle of an even number.
func (s series) median() float64 {
	if len(s) == 0 {
		return 0
	}
	v := s.sorted()
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func (s series) min() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Min(s)
}

func (s series) max() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s)
}

// percentile is the smallest value that at least p percent of the values do not exceed
// (the nearest rank): always one that was measured.
func (s series) percentile(p float64) float64 {
	if len(s) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(s))))
	return s.sorted()[max(rank, 1)-1]
}

// p99 is the 99th percentile as a series of one; of none it is none.
func (s series) p99() series {
	if len(s) == 0 {
		return nil
	}
	return series{s.percentile(99)}
}

// less is each value less that of the same round of another series.
func (s series) less(other series) series {
	var l series
	for i := range min(len(s), len(other)) {
		l = append(l, s[i]-other[i])
	}
	return l
}

// per gives the ratios to another series, value by value: those of one round belong
// together.
func (s series) per(other series) series {
	ratios := make(series, 0, len(s))
	for i := range min(len(s), len(other)) {
		if other[i] != 0 {
			ratios = append(ratios, s[i]/other[i])
		}
	}
	return ratios
}
