package sizing

import (
	"strings"
	"testing"
)

func TestPeak(t *testing.T) {
	c := Constants{Base: 1000, Fixed: 6, FirstSync: 4, Share: 0.5, GC: 2, InFlight: 3, InFlightShare: 0.25}
	tests := []struct {
		name                 string
		objects, bytes, want int64
	}{
		{"nothing", 0, 100, 1000},
		{"fewer than may be in flight", 2, 100, 1000 + 2*2*60 + 2*2*25},
		{"more", 100, 100, 1000 + 2*100*60 + 2*3*25},
	}
	for _, tt := range tests {
		if got := c.Peak(tt.objects, tt.bytes); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestWritePage(t *testing.T) {
	var page strings.Builder
	if err := WritePage(&page); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"%!", "<no value>", "NaN"} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("the page has %q in it:\n%s", bad, &page)
		}
	}
}
